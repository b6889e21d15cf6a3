"""Configs by name, and which words of a command line are group choices."""

import pytest
import yaml

from cod_lightning.commands.config_files import config_names, expand, find_config
from cod_lightning.errors import ConfigError


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["smoke", "smoke.yaml", "configs/smoke.yaml", "configs/smoke"])
def test_a_shipped_config_is_found_from_any_folder(name):
    assert find_config(name).is_file()


def test_a_file_comes_before_a_shipped_config_of_that_name(tmp_path):
    (tmp_path / "smoke.yaml").write_text("model: {lr: 1.0}\n")
    assert find_config("smoke.yaml").resolve() == tmp_path / "smoke.yaml"


def test_groups_are_not_offered_as_configs():
    assert "quickstart" in config_names()
    assert not [name for name in config_names() if name.startswith(("env/", "model/", "recipe/"))]


@pytest.mark.parametrize(
    "words",
    [
        ["--ckpt_path", "epoch=3-step=100.ckpt"],
        ["--trainer.default_root_dir", "runs/lr=1e-4"],
        ["--trainer.default_root_dir=runs/lr=1e-4"],
    ],
)
def test_an_equals_sign_in_the_value_of_a_flag_is_no_group_choice(words):
    assert expand(["--config", "smoke", *words]).argv[2:] == words


@pytest.mark.parametrize(
    "before", [["--print_config"], ["--model.lr=0.5"], ["--data.context.init_args.penalty", "-1"], []]
)
def test_a_group_choice_may_stand_anywhere_else(before):
    argv = expand(["--config", "smoke", *before, "env=frozen_lake_3x3"]).argv
    assert argv[2:] == before
    with open(argv[1]) as file:
        assert yaml.safe_load(file)["data"]["env"]["class_path"] == "cod_lightning.envs.frozen_lake.FrozenLakeObscure"


def test_a_group_choice_needs_a_config_that_is_composed(tmp_path):
    (tmp_path / "plain.yaml").write_text("model: {lr: 1.0}\n")
    with pytest.raises(ConfigError, match="Name a config first"):
        expand(["--config", "plain.yaml", "env=levers"])


@pytest.mark.parametrize(
    ("text", "said"), [("defaults: [", "a YAML file"), ("defaults: []\nx: ${y}", "Hydra can compose")]
)
def test_a_file_that_cannot_be_read_or_composed_is_named(tmp_path, text, said):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        expand(["--config", "bad.yaml"])
    assert "bad.yaml" in str(caught.value)


def test_a_config_without_a_name_says_what_there_is():
    with pytest.raises(ConfigError, match=r"--config is empty; expected a file, or one of .*quickstart"):
        expand(["--config"])
