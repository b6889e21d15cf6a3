"""What TensorBoard shows beside the logged scalars: success by position in one chart, and a lifecycle as text."""

from collections.abc import Sequence

import lightning as L
from lightning.pytorch.loggers import TensorBoardLogger

from cod_lightning.callbacks.runner import RolloutCallback
from cod_lightning.rollout import story
from cod_lightning.types import Group

_LAYOUT = {
    "by position": {
        "success on held-out packs": ["Multiline", [r"^val/success/position_\d+$"]],
        "reward in training": ["Multiline", [r"^train/reward/position_\d+$"]],
    }
}
"""Of the tab CUSTOM SCALARS: positions beside each other."""


class PositionCurve(RolloutCallback):
    """After every validation a lifecycle through its first pack; from the first on, charts of success and reward by position."""

    def __init__(self) -> None:
        self._text, self._is_laid_out = "", False

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.sanity_checking or not self._text or not trainer.is_global_zero:
            return
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                if not self._is_laid_out:
                    logger.experiment.add_custom_scalars(_LAYOUT)
                logger.experiment.add_text("val/lifecycle", self._text, trainer.global_step)
        self._is_laid_out = True

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        if label == "validation" and groups:
            self._text = story.as_markdown(groups[0].lifecycles[0])
