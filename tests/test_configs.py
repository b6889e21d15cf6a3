"""Every shipped YAML is composed, type-checked and built."""

import pytest
import yaml

from cod_lightning.commands.config_files import config_folders, config_names, expand
from cod_lightning.commands.train import TrainCLI, start
from cod_lightning.commands.warm_start import WarmStartCLI
from cod_lightning.types import Split
from datamodules import DemonstrationDataModule, RolloutDataModule
from modules import GRPOModule, WarmStartModule


def build(name, *choices):
    warm = name.startswith("warm_start/")
    argv = [
        *expand(["--config", name, *choices]).argv,
        "--trainer.accelerator",
        "cpu",
        "--trainer.precision",
        "32-true",
    ]
    if warm:
        return start(WarmStartCLI, WarmStartModule, DemonstrationDataModule, argv, execute=False)
    return start(TrainCLI, GRPOModule, RolloutDataModule, [*argv, "--warm_start", "null"], execute=False)


@pytest.mark.parametrize("name", config_names())
def test_a_shipped_config_builds(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli = build(name)
    assert cli.model.policy.window > 0
    assert cli.datamodule.env.sample_pack(split=Split.TRAIN, index=0, num_tasks=4).tasks


def test_every_group_file_says_where_it_belongs():
    (folder, *_) = config_folders()
    files = [p for group in ("env", "context", "engine", "model") for p in (folder / group).glob("*.yaml")]
    assert len(files) >= 7
    for path in files:
        first = path.read_text().splitlines()[0]
        assert first.startswith("# @package "), path
        assert "class_path" in yaml.safe_load(path.read_text())


def test_a_group_choice_replaces_the_world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli = build("quickstart", "env=frozen_lake_easy", "context=hint")
    assert (cli.datamodule.env.size_min, cli.datamodule.env.size_max) == (4, 5)
