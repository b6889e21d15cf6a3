"""The DataModule whose loaders yield sealed items."""

from typing import Any

import lightning as L
import torch

from cod_lightning.objective.batch import Batch
from cod_lightning.rollout.chat import Chat
from cod_lightning.training.stream import Sealed


class ItemDataModule(L.LightningDataModule):
    """A DataModule whose loaders are `SizedItems`."""

    _chat: Chat | None = None

    @property
    def chat(self) -> Chat:
        """Tokenizer and chat template; there after `setup`."""
        assert self._chat is not None, "setup() has not run"
        return self._chat

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Open the seal; training batches move to the device, groups of lifecycles are records and stay."""
        item = batch.item if isinstance(batch, Sealed) else batch
        return item.to(device) if isinstance(item, Batch) else item
