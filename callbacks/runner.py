"""How callbacks reach the runner of rollouts, the one thing that they use of a DataModule."""

from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

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


def lifecycles_file(trainer: L.Trainer, label: str, ending: str) -> Path:
    """The file of this rank's lifecycles under the run's folder: `LABEL.rankR.ENDING` on ranks above 0, else `LABEL.ENDING`."""
    rank = trainer.global_rank
    name = f"{label}.rank{rank}.{ending}" if rank else f"{label}.{ending}"
    return Path(trainer.default_root_dir) / "lifecycles" / name


class RolloutCallback(Callback, RolloutObserver):
    """A callback that sees every rollout, from `setup` to `teardown`."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._trainer = trainer
        follow(trainer, self)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Lightning tears down no callback then; the process may go on."""
        if getattr(self, "_trainer", None) is trainer:  # `setup` has run
            self.teardown(trainer, pl_module, trainer.state.fn or "")

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if (runner := find_runner(trainer)) is not None:
            runner.unfollow(self)
