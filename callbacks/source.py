"""What callbacks read from and hand to the DataModule that rolls out; one without these attributes is left alone."""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import lightning as L

from cod_lightning.rollout.monitor import RolloutMonitor
from cod_lightning.rollout.stats import RolloutStats
from cod_lightning.types import Group

GroupListener = Callable[[str, int, Sequence[Group]], None]
"""Called with the rollout's label (`train`, `validation`, `test_SUITE_CONDITION`), the global step, and its groups.

On several ranks each is told of the groups that it trains on; of all others rank 0 is told of all, and the rest of none.
"""


class RolloutSource(Protocol):
    """The part of a DataModule that rolls out lifecycles."""

    monitor: RolloutMonitor
    """Told of every episode as it ends."""
    group_listeners: list[GroupListener]
    """Called with the groups of every rollout, once it is over."""
    last_rollout: RolloutStats | None
    """Stats of this rank's part in the latest rollout."""


def rollout_source(trainer: L.Trainer) -> RolloutSource | None:
    """The Trainer's DataModule, if it rolls out lifecycles."""
    datamodule = getattr(trainer, "datamodule", None)
    return cast(RolloutSource, datamodule) if hasattr(datamodule, "group_listeners") else None


def listen(trainer: L.Trainer, listener: GroupListener) -> None:
    """Call the listener after every rollout; once, however often it asks."""
    source = rollout_source(trainer)
    if source is not None and listener not in source.group_listeners:
        source.group_listeners.append(listener)


def stop_listening(trainer: L.Trainer, listener: GroupListener) -> None:
    """Call the listener no more."""
    source = rollout_source(trainer)
    if source is not None and listener in source.group_listeners:
        source.group_listeners.remove(listener)
