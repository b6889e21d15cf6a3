"""Suites by name: what a name stands for, where names may stand, and what is refused."""

import dataclasses
import itertools
from pathlib import Path

import pytest
import yaml
from jsonargparse import ArgumentParser

from cod_lightning.byte_tokenizer import byte_tokenizer
from cod_lightning.commands.config_files import expand, inline, read_suites
from cod_lightning.commands.shipped import config_folder, files_of
from cod_lightning.contexts import HintContext
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.evaluation.controls import DEFAULT_CONTROLS
from cod_lightning.evaluation.readiness import ready
from cod_lightning.evaluation.suite import Suite
from cod_lightning.rollout.chat import Chat
from tests.cases import each

OWN_WORLD = ["in_domain", "longer_packs", "non_stationary", "ralph_loop"]
"""Of the training's own world."""
SHIPPED = sorted([*OWN_WORLD, "pde_control_grid", "safety", "setting_a", "setting_b"])


def built(suites: list) -> list[Suite]:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--suites", type=list[Suite])
    return parser.instantiate(parser.parse_object({"suites": suites})).suites


def config_after(argv: list[str]) -> dict:
    (text,) = [after for before, after in itertools.pairwise(argv) if before == "--config"]
    return yaml.safe_load(text)


def test_the_shipped_suites_are_these_longer_packs_are_8_16_and_32_tasks_long_and_a_world_goes_by_its_name() -> None:
    assert [*files_of("suite")] == SHIPPED
    assert [suite.pack_size for suite in built(read_suites("longer_packs"))] == [8, 16, 32]
    (_, alchemy, *_) = read_suites("setting_a")
    assert alchemy["env"]["class_path"] == "cod_lightning.envs.alchemy.Alchemy"


@pytest.mark.slow
@each("name", SHIPPED)
def test_a_shipped_suite_builds_and_says_what_it_is(name: str) -> None:
    for suite in built(read_suites(name)):
        assert (suite.env is None) == (name in OWN_WORLD)
        assert suite.num_packs == 500
    path = config_folder() / "suite" / f"{name}.yaml"
    assert path.read_text().startswith("# ")


def test_a_suite_in_a_config_takes_a_shipped_world_whole(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("data:\n  suites: [{name: hard, num_packs: 4, env: alchemy_hard}]\n")
    (suite,) = config_after(expand(["--config", str(config)]).argv)["data"]["suites"]
    assert suite["env"] == yaml.safe_load((config_folder() / "env" / "alchemy_hard.yaml").read_text())
    assert suite["num_packs"] == 4


def test_names_stand_beside_suites_that_are_spelled_out(tmp_path: Path) -> None:
    mine = {"name": "mine", "num_packs": 4}
    (tmp_path / "own.yaml").write_text("num_packs: 8\n")
    found = inline(["in_domain", mine, str(tmp_path / "own.yaml"), "longer_packs"])
    names = [suite["name"] for suite in found]
    assert names == ["in_domain", "mine", "own", "longer_packs_8", "longer_packs_16", "longer_packs_32"]
    assert found[1] is mine


@each("head", ["defaults:\n  - env: levers\n  - _self_\n", ""])
def test_a_config_may_name_suites(tmp_path: Path, head: str) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(f"{head}data:\n  suites: [in_domain, {{name: other, num_packs: 4}}]\n")
    data = config_after(expand(["--config", str(config)]).argv)["data"]
    assert [suite["name"] for suite in data["suites"]] == ["in_domain", "other"]
    assert ("env" in data) == bool(head)


def test_suites_that_are_spelled_out_stay_as_they_are(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("data:\n  suites: [{name: other}]\n")
    assert config_after(expand(["--config", str(config)]).argv) == {"data": {"suites": [{"name": "other"}]}}


@each("argv", [["--data.suites", "[in_domain, ralph_loop]"], ["data.suites=[in_domain,ralph_loop.yaml]"]])
def test_the_command_line_chooses_suites_by_name(argv: list[str]) -> None:
    found = expand(["--config", "smoke", *argv, "--model.lr", "1"]).argv
    assert found[-1] == "--model.lr=1"
    assert [suite["name"] for suite in config_after(found)["data"]["suites"]] == ["in_domain", "ralph_loop"]


@pytest.mark.parametrize(
    "name", [n if i % 4 == 0 else pytest.param(n, marks=pytest.mark.slow) for i, n in enumerate(SHIPPED)]
)
def test_a_shipped_suite_can_be_played_beside_a_training_on_lakes_in_sentences(name: str) -> None:
    world = FrozenLakeObscure()
    for suite in built(read_suites(name)):
        settled = ready(suite, world, 4, HintContext(), Chat(byte_tokenizer()))
        assert settled.controls == DEFAULT_CONTROLS
        assert settled.env is not None
        tiny = dataclasses.replace(settled, num_packs=2)
        assert {len(pack) for pack in tiny.packs(settled.env)} == {suite.pack_size or 4}
