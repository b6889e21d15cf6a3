"""A warm start is a phase of its run: it has what the run has, but for what `warm_start` says."""

import csv
import os
import signal
from dataclasses import asdict

import pytest
import yaml

from cod_lightning.commands.config_files import expand
from cod_lightning.commands.lightning_cli import CodCLI, start
from cod_lightning.commands.phase import WarmStart, config_of
from cod_lightning.commands.shipped import overlaid
from cod_lightning.commands.train import TrainCLI
from cod_lightning.datamodules import DemonstrationDataModule, RolloutDataModule
from cod_lightning.errors import Stopped
from cod_lightning.modules import GRPOModule, WarmStartModule

RUN = {
    "seed_everything": 3,
    "torch_threads": 1,
    "trainer": {"accelerator": "gpu", "precision": "bf16-mixed", "devices": 8},
    "model": {"policy": {"class_path": "a.Tiny", "init_args": {"hidden_size": 64}}, "lr": 1.0},
    "data": {
        "env": {"class_path": "b.Levers", "init_args": {"max_turns": 2, "teacher": {"follow": 0.9, "quotes": False}}},
        "context": {"class_path": "c.Hint", "init_args": {}},
        "program": {"class_path": "d.ConnectTheDots", "init_args": {"every": 4}},
        "pack_size": 9,
        "max_new_tokens": 24,
    },
}


def phase(words=None, **asked):
    return config_of(RUN | {"warm_start": asdict(WarmStart(**asked))}, words)


def test_it_has_the_environment_context_program_policy_and_sizes_of_its_run():
    made = phase(num_updates=7, lr=0.5)
    for key, value in RUN["data"].items():
        assert made["data"][key] == value
    assert made["model"]["policy"] == RUN["model"]["policy"]
    assert (made["seed_everything"], made["torch_threads"]) == (3, 1)
    assert (made["data"]["num_updates"], made["model"]["lr"]) == (7, 0.5)
    assert made["trainer"] == {"max_epochs": 1, "accelerator": "auto", "precision": "bf16-mixed"}


def test_what_it_says_itself_changes_single_arguments():
    env = {"class_path": "b.Levers", "init_args": {"max_turns": 3, "teacher": {"follow": 0.9, "quotes": True}}}
    made = phase(teacher={"quotes": True}, env={"max_turns": 3}, program={"every": 1}, pack_size=4)
    assert made["data"]["env"] == env
    assert made["data"]["program"]["init_args"] == {"every": 1}
    assert made["data"]["pack_size"] == 4
    assert RUN["data"]["env"]["init_args"]["max_turns"] == 2


def test_another_class_takes_the_place_of_the_run_s():
    tiny = {"class_path": "x.Sentences", "init_args": {"window": 9}}
    assert phase(policy=tiny)["model"]["policy"] == tiny


def test_of_a_mixture_one_world_is_changed():
    worlds = {"lake": {"class_path": "b.Lake", "init_args": {"size": 3}}, "alchemy": {"class_path": "b.Alchemy"}}
    mixture = {"class_path": "b.Mixture", "init_args": {"worlds": worlds, "weights": {"lake": 1.0}}}
    made = overlaid(mixture, {"weights": None, "worlds": {"lake": {"teacher": {"quotes": True}}}})
    assert made["init_args"]["worlds"]["lake"]["init_args"] == {"size": 3, "teacher": {"quotes": True}}
    assert made["init_args"]["worlds"]["alchemy"] == worlds["alchemy"]
    assert made["init_args"]["weights"] is None


def test_only_demonstrations_of_another_environment_name_the_words_of_the_run():
    assert "words" not in phase(words=["a"])["data"]
    assert phase(words=["a"], env={"max_turns": 3})["data"]["words"] == ["a"]


@pytest.mark.slow
def test_it_is_made_in_the_run_s_own_context_and_found_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COD_LIGHTNING_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    small = ["--warm_start.num_updates", "2", "--warm_start.num_packs", "4", "--data.max_new_tokens", "24"]

    def made(*more):
        argv = expand(["--config", "smoke", *small, "--trainer.default_root_dir", str(tmp_path / "run"), *more]).argv
        run = start(TrainCLI, GRPOModule, RolloutDataModule, argv, "warm_start")
        run.make_warm_start(None)
        return run.warm_start_folder

    notebook = made("context=notebook_compact")
    assert made("context=notebook_compact") == notebook != made()
    assert "warm start: kept in" in capsys.readouterr().err
    assert made("--data.group_size", "4") == made()
    assert (notebook / "model.safetensors").is_file()


class Dies(Exception):
    pass


@pytest.mark.slow
def test_one_that_is_stopped_or_dies_goes_on_and_ends_as_if_it_had_not(tmp_path, monkeypatch):
    argv = ["--config", "smoke", "--warm_start.num_updates", "9", "--warm_start.num_packs", "8"]
    argv = expand([*argv, "--trainer.default_root_dir", str(tmp_path / "run")]).argv
    update, stop_before = WarmStartModule.training_step, []
    done = []

    def counted(self, batch, number):
        done.append(number)
        if self.trainer.global_step in stop_before:
            stop_before.clear()
            if dies:
                raise Dies
            os.kill(os.getpid(), signal.SIGTERM)
        update(self, batch, number)

    def made(cache):
        monkeypatch.setenv("COD_LIGHTNING_CACHE", str(cache))
        run = start(TrainCLI, GRPOModule, RolloutDataModule, argv, "warm_start")
        done.clear()
        run.make_warm_start(None)
        (metrics,) = cache.glob("warm_start/*.run/metrics.csv")
        return (run.warm_start_folder / "model.safetensors").read_bytes(), metrics.read_text()

    monkeypatch.setattr(WarmStartModule, "training_step", counted)
    unbroken = made(tmp_path / "unbroken")
    for dies, error in ((False, Stopped), (True, Dies)):
        stop_before.append(5)
        with pytest.raises(error):
            made(tmp_path / error.__name__)
        broken = made(tmp_path / error.__name__)
        assert done == list(range(3 if dies else 6, 9)), "a checkpoint at every third update, or where it was stopped"
        assert broken[0] == unbroken[0]
        assert untimed(broken[1]) == untimed(unbroken[1])
    assert not list(tmp_path.glob("*/warm_start/*.run/checkpoints"))


def untimed(metrics):
    return [
        {key: value for key, value in row.items() if "time" not in key} for row in csv.DictReader(metrics.splitlines())
    ]


def test_a_rank_of_the_run_builds_the_phase_which_has_one_rank(monkeypatch, tmp_path):
    """Lightning gives ranks that it starts their number in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COD_LIGHTNING_CACHE", str(tmp_path))
    argv = expand(["--config", "smoke"]).argv
    run = start(TrainCLI, GRPOModule, RolloutDataModule, [*argv, "--warm_start", "null"], "warm_start")
    asked = run.asked | {"warm_start": asdict(WarmStart(num_updates=1))}
    monkeypatch.setenv("LOCAL_RANK", "1")
    argv = ["--config", yaml.safe_dump(config_of(asked), sort_keys=False)]
    monkeypatch.setattr(CodCLI, "act", lambda *_: None)
    made = start(CodCLI, WarmStartModule, DemonstrationDataModule, argv, "warm_start", action="fit")
    assert made.trainer.num_devices == 1
