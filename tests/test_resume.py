"""A run that was killed after any update goes on as if it had never stopped."""

import csv
import os
import signal
import traceback
from pathlib import Path

import pytest
import torch

from callbacks.checkpoints import RunCheckpoint
from callbacks.metrics_file import rows_before
from cod_lightning.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SMALL = [
    *("fit", "--config", "smoke", "--warm_start", "null", "--torch_threads", "1", "--checkpoint_every", "1"),
    *("--data.rollouts_per_epoch", "2", "--data.updates_per_rollout", "2", "--data.packs_per_rollout", "4"),
    *("--data.group_size", "4", "--data.val_packs", "8", "--data.suites", "null", "--trainer.max_epochs", "2"),
]
NUM_UPDATES = 8


def fit(folder: Path, *more: str, killed_after: int | None = None) -> None:
    """Run in a forked child; killed with SIGKILL as soon as the checkpoint of that update is there."""
    child = os.fork()
    if child == 0:
        save = RunCheckpoint._save_checkpoint

        def save_and_die(self, trainer, filepath):
            save(self, trainer, filepath)
            if trainer.global_step == killed_after:
                os.kill(os.getpid(), signal.SIGKILL)

        RunCheckpoint._save_checkpoint = save_and_die
        status = 1
        try:
            status = main([*SMALL, "--trainer.default_root_dir", str(folder), *more])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    expected = 0 if killed_after is None else signal.SIGKILL
    assert (os.WEXITSTATUS(status) if os.WIFEXITED(status) else os.WTERMSIG(status)) == expected


def checkpoint(folder: Path) -> dict:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


def metrics(folder: Path) -> list[dict[str, str]]:
    """Rows of metrics.csv, timing aside."""
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "throughput/"))} for row in rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    fit(folder)
    return folder


@pytest.mark.parametrize("update", range(1, NUM_UPDATES))
def test_killed_after_any_update_a_run_goes_on_bit_for_bit(update, whole, tmp_path):
    folder = tmp_path / "run"
    fit(folder, killed_after=update)
    fit(folder, "--ckpt_path", "last")
    resumed, uninterrupted = checkpoint(folder), checkpoint(whole)
    assert resumed["global_step"] == uninterrupted["global_step"] == NUM_UPDATES
    for name, tensor in uninterrupted["state_dict"].items():
        assert torch.equal(resumed["state_dict"][name], tensor), name
    moments = [c["optimizer_states"][0]["state"] for c in (resumed, uninterrupted)]
    assert all(torch.equal(moments[0][i]["exp_avg_sq"], moments[1][i]["exp_avg_sq"]) for i in moments[1])
    assert metrics(folder) == metrics(whole)


EXTRAS = [
    *(
        "--data.passes_per_rollout",
        "2",
        "--data.resample_packs",
        "1",
        "--data.rollouts_per_epoch",
        "1",
        "--data.group_size",
        "2",
    ),
    *("--data.anchors.attempts", "2", "--data.anchors.fraction", "0.5", "--data.counterfactual.fraction", "0.5"),
]


def test_killed_in_a_second_pass_over_packs_some_of_which_were_replaced_a_run_goes_on_bit_for_bit(tmp_path):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    fit(whole, *EXTRAS)
    fit(folder, *EXTRAS, killed_after=3)
    fit(folder, *EXTRAS, "--ckpt_path", "last")
    resumed, uninterrupted = checkpoint(folder), checkpoint(whole)
    assert resumed["global_step"] == uninterrupted["global_step"] == NUM_UPDATES
    for name, tensor in uninterrupted["state_dict"].items():
        assert torch.equal(resumed["state_dict"][name], tensor), name
    assert metrics(folder) == metrics(whole)
    assert any(float(row["train/resampled_packs"] or 0) for row in metrics(whole))
    assert any(float(row["rollout/num_attempts"] or 0) for row in metrics(whole))


def test_tensorboard_goes_on_without_repeats(whole, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "run"
    fit(folder, killed_after=3)
    fit(folder, "--ckpt_path", "last")
    steps = []
    for run in (whole, folder):
        events = EventAccumulator(str(run / "tensorboard"))
        events.Reload()
        steps.append([e.step for e in events.Scalars("train/gradient_norm")])
    assert steps[0] == steps[1] == list(range(NUM_UPDATES))


def test_a_torn_last_row_of_the_metrics_does_not_count(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("a,step,b\n1,0,2\n1,1,2\n1,2,2\n1,")
    assert rows_before(path, 2) == [["a", "step", "b"], ["1", "0", "2"], ["1", "1", "2"]]
    path.write_text("")
    assert rows_before(path, 2) == []
