"""Every shipped YAML is composed, type-checked and built."""

from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from cod_lightning.commands.config_files import expand, temporary_config
from cod_lightning.commands.lightning_cli import start
from cod_lightning.commands.phase import WarmStart, WarmStartCLI, config_of
from cod_lightning.commands.shipped import config_folders, config_names
from cod_lightning.commands.train import TrainCLI
from cod_lightning.credit import baselines, returns
from cod_lightning.credit.baselines import Baseline
from cod_lightning.credit.returns import CreditRule
from cod_lightning.datamodules import DemonstrationDataModule, RolloutDataModule
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.modules import GRPOModule, WarmStartModule
from cod_lightning.objective import losses, mismatch
from cod_lightning.objective.losses import PolicyLoss
from cod_lightning.objective.mismatch import MismatchCorrection
from cod_lightning.types import Split

pytestmark = pytest.mark.slow


def build(name, *choices):
    argv = [
        *expand(["--config", name, *choices]).argv,
        "--trainer.accelerator",
        "cpu",
        "--trainer.precision",
        "32-true",
    ]
    return start(TrainCLI, GRPOModule, RolloutDataModule, [*argv, "--warm_start", "null"], execute=False)


@pytest.mark.parametrize("name", config_names())
def test_a_shipped_config_builds(name, tmp_path, monkeypatch):
    if name.endswith("/textworld"):
        pytest.importorskip("textworld", reason="pip install 'cod-lightning[textworld]'")
    monkeypatch.chdir(tmp_path)
    cli = build(name)
    assert cli.model.policy.window > 0
    assert cli.datamodule.env.sample_pack(split=Split.TRAIN, index=0, num_tasks=4).tasks
    plain = yaml.safe_load(Path(expand(["--config", name]).argv[1]).read_text())
    if plain.get("warm_start"):
        run = cli.asked | {"warm_start": asdict(WarmStart(**plain["warm_start"]))}
        content = config_of(run, cli.datamodule.words_for(cli.model.policy))
        argv = ["--config", str(temporary_config("warm_start.yaml", content))]
        phase = start(WarmStartCLI, WarmStartModule, DemonstrationDataModule, argv, execute=False)
        assert phase.datamodule.num_updates == plain["warm_start"]["num_updates"]
        assert phase.datamodule.env.words() == cli.datamodule.env.words()


@pytest.mark.parametrize("name", ["one_24gb_qlora_8b", "eight_80gb_full_8b", "nodes_80gb_full_8b"])
def test_a_large_training_takes_another_engine_and_another_world_in_a_word(name):
    name = f"experiment/{name}"
    assert isinstance(build(name, "engine=transformers", "env=alchemy_easy").datamodule.engine, TransformersEngine)
    cli = build(name, "engine=vllm_server", "--data.engine.init_args.urls", "[http://localhost:1]")
    assert cli.datamodule.engine.urls


@pytest.mark.parametrize(
    "name", [one for one in config_names() if one.startswith("experiment/") and "endpoint" not in one][::6]
)
def test_every_training_takes_a_method_in_a_word(name):
    data = expand(["--config", name, "method=loop"]).argv[1]
    assert yaml.safe_load(Path(data).read_text())["model"]["loss"]["class_path"].endswith("losses.LOOP")


def group_files(*groups):
    folder = config_folders()[0]
    return [path for group in groups for path in sorted((folder / group).glob("*.yaml"))]


def settings(path):
    """What a file says of the model, and of the data."""
    said = yaml.safe_load(path.read_text())
    return (said["model"], said["data"]) if path.read_text().startswith("# @package _global_") else (said, {})


CHOICES = [f"{path.parent.name}={path.stem}" for path in group_files("loss", "credit", "regulariser")]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_part_of_the_objective_can_be_chosen_and_is_what_its_file_says(choice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli = build("smoke", choice)
    model, (group, _, name) = cli.model, choice.partition("=")
    said, of_data = settings(config_folders()[0] / group / f"{name}.yaml")
    assert {key: getattr(cli.datamodule, key) for key in of_data} == of_data
    for key, value in ({group: said} if "class_path" in said else said).items():
        found = getattr(model, key)
        if key == "terms":
            for one, its in zip(found, value or (), strict=True):
                assert f".{type(one).__name__}" == its["class_path"][its["class_path"].rfind(".") :]
                assert {k: getattr(one, k) for k in its["init_args"]} == its["init_args"]
            continue
        if not isinstance(value, dict):
            assert found == value
            continue
        assert f"{type(found).__module__}.{type(found).__name__}".startswith(value["class_path"].rpartition(".")[0])
        assert type(found).__name__ == value["class_path"].rpartition(".")[2]
        given = {k: v for k, v in value.get("init_args", {}).items() if not str(v).startswith("$")}
        assert {k: getattr(found, k) for k in given} == given


@pytest.mark.parametrize("path", group_files("loss"), ids=lambda path: path.stem)
def test_a_loss_file_spells_out_every_option(path):
    """jsonargparse keeps options that another class of the same seam had before, if they have the same name."""
    said, _ = settings(path)
    assert said.keys() >= {"loss", "scale", "reweight"}
    home, _, name = said["loss"]["class_path"].rpartition(".")
    known = vars(getattr(import_module(home), name)())
    assert {k for k, v in known.items() if v is not None} <= said["loss"].get("init_args", {}).keys()


SEAMS = {"loss": (PolicyLoss, losses), "credit": (CreditRule, returns), "baseline": (Baseline, baselines)}
NAMED = [
    (key, value)
    for key, (seam, home) in (SEAMS | {"mismatch": (MismatchCorrection, mismatch)}).items()
    for value in vars(home).values()
    if isinstance(value, type) and issubclass(value, seam) and value is not seam
]


@pytest.mark.parametrize(("key", "kind"), NAMED, ids=lambda one: getattr(one, "__name__", one))
def test_every_class_of_the_objective_is_chosen_by_its_name(key, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    beside = ["regulariser=entropy"] if kind is baselines.TermsAlone else []  # refused without a term
    model = build("smoke", "loss=reinforce", f"--model.{key}", kind.__name__, *beside).model
    assert type(getattr(model, key)) is kind
    if key in ("credit", "baseline"):
        assert type(getattr(build("smoke", "loss=reinforce", f"{key}={kind.__name__}", *beside).model, key)) is kind


def test_parts_of_the_objective_combine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = build("smoke", "loss=dapo", "credit=trajectory", "baseline=LeaveOneOut", "regulariser=entropy").model
    assert (model.loss, model.credit, model.baseline) == (
        losses.DAPO(),
        returns.TrajectoryCredit(),
        baselines.LeaveOneOut(),
    )
    assert (model.scale, model.reweight, model.filter_packs) == ("group", None, True)


def test_a_program_of_a_method_is_chosen_by_its_name_and_one_within_it_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inner = ("--data.program.program", "Anchored", "--data.program.program.attempts", "3")
    program = build("smoke", "--data.program", "Counterfactual", *inner).datamodule.program
    assert program == Counterfactual(program=Anchored(attempts=3))


def test_parts_of_the_reward_are_chosen_together_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert list(build("smoke").datamodule.rewards) == ["world", "context"]
    paths = group_files("reward")
    rewards = build("smoke", f"+reward=[{','.join(path.stem for path in paths)}]").datamodule.rewards
    assert list(rewards) == ["world", "context", *(path.stem for path in paths)]
    for path in paths:
        said, found = yaml.safe_load(path.read_text()), rewards[path.stem]
        assert type(found).__name__ == said["class_path"].rpartition(".")[2]
        given = {k: set(v) if isinstance(v, list) else v for k, v in said["init_args"].items() if hasattr(found, k)}
        assert {k: getattr(found, k) for k in given} == given
        assert "weight" in given


@pytest.mark.parametrize("path", group_files("source"), ids=lambda path: path.stem)
def test_a_source_of_packs_can_be_chosen_and_is_what_its_file_says(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = build("experiment/mixture", f"+source={path.stem}").datamodule.packs.source
    said = yaml.safe_load(path.read_text())
    assert f"{type(source).__module__}.{type(source).__name__}" == said["class_path"]
    assert vars(source).items() >= said.get("init_args", {}).items()
    assert list(source.categories) == ["lake", "alchemy"]


@pytest.mark.parametrize("path", group_files("replay"), ids=lambda path: path.stem)
def test_a_replay_can_be_chosen_and_is_what_its_file_says(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    replay = build("smoke", f"+replay={path.stem}").datamodule.replay
    said = yaml.safe_load(path.read_text())
    assert f"{type(replay).__module__}.{type(replay).__name__}" == said["class_path"]
    assert vars(replay).items() >= said["init_args"].items()


def test_every_group_file_says_where_it_belongs():
    objects = group_files("env", "context", "engine", "model", "credit", "source", "replay", "reward")
    parts = group_files("loss", "regulariser")
    assert len(objects) >= 17
    assert len(parts) >= 10
    for path in objects + parts:
        first = path.read_text().splitlines()[0]
        assert first.startswith("# @package "), path
        assert path in parts or "class_path" in yaml.safe_load(path.read_text())
        assert path in objects or first in ("# @package model", "# @package _global_")


@pytest.mark.parametrize("path", group_files("strategy"), ids=lambda path: path.stem)
def test_a_strategy_can_be_chosen_and_is_what_its_file_says(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = yaml.safe_load(path.read_text())["strategy"]
    strategy = build("smoke", f"strategy={path.stem}").trainer.strategy
    assert type(strategy).__name__ == (
        given["class_path"].rpartition(".")[2] if isinstance(given, dict) else "DDPStrategy"
    )


def test_a_group_choice_replaces_the_world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli = build("quickstart", "env=frozen_lake_easy", "context=hint")
    assert (cli.datamodule.env.parameters.size_min, cli.datamodule.env.parameters.size_max) == (4, 5)
