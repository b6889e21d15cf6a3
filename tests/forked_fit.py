"""A short `fit` in a forked child, which tests kill, stop and start again, and what it left."""

import csv
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cod_lightning.callbacks.checkpoints import RunCheckpoint
from cod_lightning.callbacks.progress import Progress
from cod_lightning.cli import main
from cod_lightning.modules import GRPOModule

SMALL = [
    *("fit", "--config", "smoke", "--warm_start", "null", "--torch_threads", "1", "--data.suites", "null"),
    *("--data.rollouts_per_epoch", "2", "--data.updates_per_rollout", "2", "--data.packs_per_rollout", "4"),
    *("--data.group_size", "4", "--data.val_packs", "2", "--trainer.max_epochs", "2"),
]
EVERY = ("--checkpoint_every", "1")
NUM_UPDATES = 8
SHORT = ("--trainer.max_epochs", "1")
"""Half of the updates: two rollouts."""


def with_a_teacher(folder: Path) -> list[str]:
    """Arguments for reverse KL to the policy in that folder, which a `CheckpointScorer` reads, and to the policy that sees more."""
    kl, scorers = "cod_lightning.objective.terms.KL", "cod_lightning.training.scorers"
    terms = [{"class_path": kl, "init_args": {"coefficient": 0.25, "to": to}} for to in ("teacher", "privileged")]
    teacher = {"class_path": f"{scorers}.CheckpointScorer", "init_args": {"path": str(folder)}}
    both = {"teacher": teacher, "privileged": {"class_path": "cod_lightning.methods.privileged.PrivilegedScorer"}}
    return ["--model.terms", json.dumps(terms), "--model.scorers", json.dumps(both)]


def start(folder: Path, *more: str, before: Callable[[], None] = lambda: None) -> int:
    """Id of the child; `before` prepares it. Its output goes to `FOLDER.log`."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        log = os.open(folder.with_name(f"{folder.name}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout, sys.stderr = (os.fdopen(handle, "w", buffering=1) for handle in (1, 2))  # pytest has replaced them
        before()
        status = main([*SMALL, "--trainer.default_root_dir", str(folder), *more])
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def fit(folder: Path, *more: str, before: Callable[[], None] = lambda: None) -> int:
    """Exit code of the child; -N where signal N ended it."""
    _, status = os.waitpid(start(folder, *more, before=before), 0)
    return os.waitstatus_to_exitcode(status)


def in_update(number: int, act: Callable[[], None]) -> Callable[[], None]:
    """Makes `act` happen in the middle of that update, the first being 1."""

    def before() -> None:
        step = GRPOModule.training_step

        def acting(self: GRPOModule, batch: Any, batch_idx: int) -> None:
            if self.global_step == number - 1:
                act()
            step(self, batch, batch_idx)

        GRPOModule.training_step = acting

    return before


def in_rollout(label: str, act: Callable[[], None], *, at_episode: int = 5, rollout: int = 1) -> Callable[[], None]:
    """Makes `act` happen after so many episodes of the child's N-th rollout of that label (`train`, `validation`)."""

    def before() -> None:
        begin, episode, seen = Progress.begin, Progress.episode, {"rollouts": 0, "episodes": 0}

        def beginning(self: Progress, its_label: str, num_lifecycles: int, num_tasks: int) -> None:
            seen["rollouts"] += its_label == label
            seen["episodes"] = -1 if its_label != label or seen["rollouts"] != rollout else 0
            begin(self, its_label, num_lifecycles, num_tasks)

        def counting(self: Progress, ended: Any) -> None:
            episode(self, ended)
            seen["episodes"] += seen["episodes"] >= 0
            if seen["episodes"] == at_episode:
                act()

        Progress.begin, Progress.episode = beginning, counting

    return before


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def killed_after(update: int) -> Callable[[], None]:
    """SIGKILL as soon as the checkpoint of that update is there."""

    def before() -> None:
        save = RunCheckpoint.save

        def save_and_die(self: RunCheckpoint, trainer: Any) -> None:
            save(self, trainer)
            if trainer.global_step == update:
                os.kill(os.getpid(), signal.SIGKILL)

        RunCheckpoint.save = save_and_die

    return before


def noting_draws(folder: Path, then: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """Every update leaves a file with a random number, drawn where a policy or a loss term would draw."""

    def before() -> None:
        step = GRPOModule.training_step

        def noting(self: GRPOModule, batch: Any, batch_idx: int) -> None:
            (folder.parent / f"{folder.name}.draw{self.global_step}").write_text(str(torch.rand(()).item()))
            step(self, batch, batch_idx)

        GRPOModule.training_step = noting
        then()

    return before


def draws(folder: Path) -> list[str]:
    return [(folder.parent / f"{folder.name}.draw{update}").read_text() for update in range(NUM_UPDATES)]


def said(folder: Path) -> str:
    """What the children of that folder printed."""
    return folder.with_name(f"{folder.name}.log").read_text()


def checkpoint(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


def metrics(folder: Path) -> list[dict[str, str]]:
    """Rows of metrics.csv, timing aside."""
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "throughput/"))} for row in rows]


def assert_alike(one: list[dict[str, str]], other: list[dict[str, str]]) -> None:
    """Rows of two runs but for rounding: within 1e-4, since AdamW's first steps divide rounding by rounding."""
    for ours, theirs in zip(one, other, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            assert (value == "") == (theirs[name] == ""), name
            assert not value or float(theirs[name]) == pytest.approx(float(value), rel=1e-4, abs=1e-5), name


def assert_the_same(one: Path, other: Path, num_updates: int = NUM_UPDATES) -> None:
    """Both runs ended, with the same parameters, moments and metrics, bit for bit."""
    first, second = checkpoint(one), checkpoint(other)
    assert first["global_step"] == second["global_step"] == num_updates
    for name, tensor in second["state_dict"].items():
        assert torch.equal(first["state_dict"][name], tensor), name
    moments = [c["optimizer_states"][0]["state"] for c in (first, second)]
    assert all(torch.equal(moments[0][i]["exp_avg_sq"], moments[1][i]["exp_avg_sq"]) for i in moments[1])
    assert metrics(one) == metrics(other)
