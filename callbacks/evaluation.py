"""Collects what `test` plays and writes it down: `evaluation.json`, and the table a person reads."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from cod_lightning.markdown import visible

if TYPE_CHECKING:
    from cod_lightning.evaluation.results import PlayedCondition


class Evaluation(Callback):
    """Keeps the outcomes of every suite and condition and rewrites `evaluation.json` after each pass of `test`.

    One object lives through several passes (the trained policy, then the references, then the warm start), so that they can
    be paired.
    """

    def __init__(self) -> None:
        self.played: list[PlayedCondition] = []
        self.policy: str | None = None
        """Name of what is played where nothing was trained."""
        self._files_are_old = False
        """Whether what the files hold was played with other weights of this run."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._files_are_old = True

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Refuse files that cannot be added to before anything is played. Raises `DataError`."""
        from cod_lightning.evaluation.packs_file import packs_table
        from cod_lightning.evaluation.results import read_results

        if trainer.is_global_zero and not self._files_are_old:  # which go once there is a new one
            for name, read in (("evaluation.json", read_results), ("evaluation_packs.parquet", packs_table)):
                if (path := Path(trainer.default_root_dir) / name).exists():
                    read(path)

    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: "PlayedCondition",
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        trained = batch.control.weights == "trained"
        checkpoint = visible(str(trainer.ckpt_path)) if trained and trainer.ckpt_path else None
        self.played.append(replace(batch, checkpoint=checkpoint, policy=self.policy))

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """What was played goes to the files, each in one replace."""
        from cod_lightning.evaluation.packs_file import write_packs
        from cod_lightning.evaluation.results import write_results

        if trainer.is_global_zero:
            root = Path(trainer.default_root_dir)
            results, packs = root / "evaluation.json", root / "evaluation_packs.parquet"
            for file in (results, packs) if self._files_are_old else ():
                file.unlink(missing_ok=True)
            self._files_are_old = False
            write_results(results, self.played)
            write_packs(packs, self.played)
