"""Updates on one recorded rollout, again and again."""

from typing import Literal

import lightning as L

from cod_lightning.commands.lightning_cli import quieten
from cod_lightning.objective.batch import Batch
from cod_lightning.rollout.chat import Chat
from cod_lightning.training.stream import SizedItems
from datamodules.items import ItemDataModule
from modules.grpo import GRPOModule


class Recorded(ItemDataModule):
    """One batch, `count` times; what a module asks of its data while it trains."""

    def __init__(self, batch: Batch, chat: Chat, count: int) -> None:
        super().__init__()
        self.batch, self._chat, self.count, self.seed, self.max_staleness = batch, chat, count, 1, 0

    def train_dataloader(self) -> SizedItems:
        """As many updates as are measured."""
        return SizedItems(lambda: iter([self.batch] * self.count), self.count)


def train_on(
    batch: Batch,
    chat: Chat,
    module: GRPOModule,
    clock: L.Callback,
    count: int,
    device: str = "cpu",
    precision: Literal["32-true", "bf16-true"] = "32-true",
) -> None:
    """Make the updates, each with the scores that its terms need; the clock is the only callback."""
    quieten()
    module.setup = lambda stage: None  # nothing to check against a recorded rollout
    step = module.training_step
    module.training_step = lambda batch, batch_idx: step(module.score(batch, lambda *of_row: None), batch_idx)
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="gpu" if device == "cuda" else "cpu",
        devices=1,
        precision=precision,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[clock],
        limit_val_batches=0,
    )
    trainer.fit(module, Recorded(batch, chat, count))
