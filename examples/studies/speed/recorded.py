"""Updates on one recorded rollout, again and again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import lightning as L

from cod_lightning.commands.lightning_cli import quieten
from cod_lightning.credit.table import episode_table, facts_of
from cod_lightning.datamodules.items import ItemDataModule
from cod_lightning.modules.grpo import GRPOModule
from cod_lightning.objective.batch import Batch, collate
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.segments import segments_of
from cod_lightning.training.stream import SizedItems
from cod_lightning.types import Group


class Recorded(ItemDataModule):
    """One batch, `count` times; what a module asks of its data while it trains."""

    def __init__(self, batch: Batch, chat: Chat, count: int) -> None:
        super().__init__()
        self.batch, self._chat, self.count, self.seed = batch, chat, count, 1

    def setup(self, stage: str) -> None:
        self.learner.meet(self.chat, self.seed, ())

    def train_dataloader(self) -> SizedItems:
        """As many updates as are measured."""
        return SizedItems(lambda: iter([self.batch] * self.count), self.count)


def train_on(
    groups: Sequence[Group],
    chat: Chat,
    module: GRPOModule,
    clock: L.Callback,
    count: int,
    device: str = "cpu",
    precision: Literal["32-true", "bf16-true"] = "32-true",
) -> None:
    """Make the updates, each with the scores that its terms need; the clock is the only callback."""
    quieten()
    table, index = episode_table(list(map(facts_of, groups))), {group.pack.id: g for g, group in enumerate(groups)}
    batch = collate(segments_of(groups), table, index, pad_id=chat.pad_id)
    batch = replace(batch, advantages=module.credited(table).advantages[batch.episode])
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
