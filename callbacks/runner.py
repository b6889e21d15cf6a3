"""How callbacks reach the runner of rollouts, the one thing that they use of a DataModule."""

from typing import Any

import lightning as L

from cod_lightning.rollout.runner import RolloutObserver, RolloutRunner


def find_runner(trainer: L.Trainer) -> RolloutRunner | None:
    """The DataModule's `runner`; None where it rolls nothing out, and callbacks leave it alone."""
    data: Any = getattr(trainer, "datamodule", None)
    return getattr(data, "runner", None)


def runner_of(trainer: L.Trainer) -> RolloutRunner:
    """The DataModule's `runner`, for callbacks that make no sense without."""
    runner = find_runner(trainer)
    assert runner is not None, "the DataModule rolls nothing out"
    return runner


def follow(trainer: L.Trainer, observer: RolloutObserver) -> None:
    """Have the observer called, if anything is rolled out."""
    if (runner := find_runner(trainer)) is not None:
        runner.follow(observer)


def unfollow(trainer: L.Trainer, observer: RolloutObserver) -> None:
    """Have it called no more."""
    if (runner := find_runner(trainer)) is not None:
        runner.unfollow(observer)
