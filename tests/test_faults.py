"""Planted faults: the run ends normally, and each is counted under its name, once. Minutes, so part of `.ci/run` only."""

import csv
import os
import traceback
from pathlib import Path

import pytest
import torch

from cod_lightning.cli import main
from tests.planted_faults import play_through_an_outage, train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore::UserWarning")]
SMALL = [
    *("--config", "smoke", "--warm_start", "null", "--torch_threads", "1", "--checkpoint_every", "1"),
    *("--data.rollouts_per_epoch", "2", "--data.updates_per_rollout", "2", "--data.packs_per_rollout", "4"),
    *("--data.group_size", "4", "--data.val_packs", "8", "--data.suites", "null", "--trainer.max_epochs", "1"),
    *("--data.engine", "tests.stalling_engine.StallingEngine", "--data.deadlines.stall_s", "3"),
]


def fit(folder: Path, *more: str) -> int:
    """Exit code of a `fit` in a forked child."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = main(["fit", *SMALL, "--trainer.default_root_dir", str(folder), *more])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def metrics(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return [
            {k: v for k, v in row.items() if not k.startswith(("time/", "throughput/"))} for row in csv.DictReader(file)
        ]


def test_an_engine_that_hangs_in_this_process_ends_the_run_with_code_70_and_it_is_resumed_exactly(
    tmp_path, monkeypatch
):
    folder, whole = tmp_path / "run", tmp_path / "whole"
    monkeypatch.setenv("STALLED_NOTE", str(tmp_path / "note"))
    assert fit(folder) == 70
    report = (folder / "stalled.txt").read_text()
    assert "nothing has moved for 3 s in the rollout 'train'" in report
    assert "in decoding_hangs" in report
    assert "/train/" in report
    assert fit(folder, "--ckpt_path", "last") == 0
    assert fit(whole) == 0
    assert metrics(folder) == metrics(whole)
    resumed, uninterrupted = (
        torch.load(f / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for f in (folder, whole)
    )
    assert all(torch.equal(resumed[name], tensor) for name, tensor in uninterrupted.items())


@pytest.mark.soak
def test_a_training_with_a_hundred_of_each_fault_ends_normally_and_counts_each_once(tmp_path):
    found = train(tmp_path, rollouts=2, packs=63, updates=3, step_s=2.0, turn_s=8.0)
    assert min(found["planted"].values()) >= 100
    assert len(found["planted"]) == 6
    assert set(found["counted"]) == {"EnvironmentFailure", "WorldHung", "EngineFailure", "TurnTimeout", "BadCompletion"}


def test_a_hundred_lifecycles_at_a_server_that_dies_and_comes_back(tmp_path):
    found = play_through_an_outage(tmp_path, 100, max_retries=0)
    assert found["counted"]["EndpointFailure"] >= 30
