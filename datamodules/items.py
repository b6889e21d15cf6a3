"""How items reach a module: Lightning counts them, hands them on sealed, and looks inside none."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch

from cod_lightning.objective.batch import Batch


class Sealed:
    """An item that Lightning's precision plugins pass on as it is.

    They go through whatever a loader yields and cast its numbers: under `bf16-true` behaviour log-probabilities and
    rewards would lose all but three digits, and frozen records are refused.
    """

    __slots__ = ("item",)

    def __init__(self, item: Any) -> None:
        self.item = item


@dataclass(frozen=True)
class SizedItems:
    """An iterable with a length: Lightning then fetches an item only when it is needed."""

    items: Callable[[], Iterator[Any]]
    length: int

    def __iter__(self) -> Iterator[Sealed]:
        """A fresh pass."""
        return map(Sealed, self.items())

    def __len__(self) -> int:
        """Items of one pass."""
        return self.length


class ItemDataModule(L.LightningDataModule):
    """A DataModule whose loaders are `SizedItems`."""

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Open the seal; training batches move to the device, groups of lifecycles are records and stay."""
        item = batch.item if isinstance(batch, Sealed) else batch
        return item.to(device) if isinstance(item, Batch) else item
