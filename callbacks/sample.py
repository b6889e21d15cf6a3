"""One lifecycle of each validation, to be read in TensorBoard."""

from collections.abc import Sequence

import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger

from callbacks.runner import follow, unfollow
from cod_lightning.rollout import story
from cod_lightning.rollout.runner import RolloutObserver
from cod_lightning.types import Group


class Sample(Callback, RolloutObserver):
    """Shows as `val/lifecycle` how the policy of that moment lived through one held-out pack, the same one each time.

    Args:
        pack: Index of the pack among those of a validation; the last one where there are fewer.
    """

    def __init__(self, pack: int = 0) -> None:
        self.pack = pack
        self._text = ""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Follow rollouts."""
        follow(trainer, self)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Follow them no more."""
        unfollow(trainer, self)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the text, where there is a TensorBoard to read it in."""
        if trainer.sanity_checking or not self._text or not trainer.is_global_zero:
            return
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text("val/lifecycle", self._text, trainer.global_step)

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        """Keep the lifecycle of a validation."""
        if label == "validation" and groups:
            chosen = groups[min(self.pack, len(groups) - 1)]
            self._text = story.as_markdown(chosen.lifecycles[0])
