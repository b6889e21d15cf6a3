"""Collects what `test` plays and writes it down: `evaluation.json`, and the table a person reads."""

from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.results import Played, write_results
from cod_lightning.types import Group


class Evaluation(Callback):
    """Keeps the outcomes of every suite and condition and rewrites `evaluation.json` after each pass of `test`.

    One object lives through several passes (the trained policy, then the warm start), so that they can be paired.
    """

    def __init__(self) -> None:
        self.played: list[Played] = []

    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: list[Group],
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """One condition of one suite has been played."""
        suite, condition = trainer.datamodule.test_conditions()[dataloader_idx]  # pyright: ignore
        env = suite.env or trainer.datamodule.env  # pyright: ignore
        outcomes = Outcomes.of([lifecycle for group in batch for lifecycle in group.lifecycles])
        self.played.append(Played(suite=suite, condition=condition, env=env.name, outcomes=outcomes))

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Everything played so far goes to the file, in one replace."""
        if trainer.is_global_zero:
            write_results(Path(trainer.default_root_dir) / "evaluation.json", self.played)
