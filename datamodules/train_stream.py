"""The endless row of training updates: rollout after rollout, stopped between any two updates and gone on with exactly."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from cod_lightning.objective.batch import Batch, CreditTable
from datamodules.items import Sealed


class TrainStream:
    """A sized loader whose state is the rollouts begun and the updates of the current one that are still to come.

    Sized, so that Lightning never fetches ahead of the weights.

    Args:
        roll_out: From the number of a rollout to the batches made of it.
        rollouts_per_epoch: Rollouts of an epoch.
        updates_per_rollout: Batches made of a rollout.
    """

    def __init__(
        self, roll_out: Callable[[int], list[Batch]], rollouts_per_epoch: int, updates_per_rollout: int
    ) -> None:
        self._roll_out = roll_out
        self._length = rollouts_per_epoch * updates_per_rollout
        self.num_rollouts = 0
        """Rollouts done; the cursor over training packs."""
        self._pending: deque[Batch] = deque()
        self._left = 0
        """Updates left in an epoch that was begun."""
        self.listeners: list[Callable[[], None]] = []
        """Called between two updates of an epoch: whatever the last one did, logging included, is done then."""

    def __len__(self) -> int:
        """Updates of an epoch."""
        return self._length

    @property
    def mid_rollout(self) -> bool:
        """Whether updates of a rollout are still to come."""
        return bool(self._pending)

    def __iter__(self) -> Iterator[Sealed]:
        """The rest of an epoch that was begun, else the next one."""
        self._left = self._left or self._length
        begun = False
        while self._left:
            for listener in self.listeners if begun else ():
                listener()
            begun = True
            if not self._pending:
                self._pending.extend(self._roll_out(self.num_rollouts))
                self.num_rollouts += 1
            self._left -= 1
            yield Sealed(self._pending.popleft())

    def amend(self, change: Callable[[Batch], Batch]) -> None:
        """Replace the updates of the current rollout that are still to come."""
        self._pending = deque(change(batch) for batch in self._pending)

    def state_dict(self) -> dict[str, Any]:
        """Nothing: that it has one tells Lightning that it can go on, but Lightning restores a loader's state too late."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The DataModule does it, with `restore`."""

    def saved(self) -> dict[str, Any]:
        """Where it stands, in plain containers and tensors."""
        pending = [_plain(batch) for batch in self._pending]
        return {"num_rollouts": self.num_rollouts, "left": self._left, "pending": pending}

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on where `saved` was called."""
        self.num_rollouts, self._left = saved["num_rollouts"], saved["left"]
        self._pending = deque(_batch(plain) for plain in saved["pending"])


def _plain(record: Batch | CreditTable) -> dict[str, Any]:
    """The record as a dict, records in it too."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: _plain(value) if isinstance(value, CreditTable) else value for name, value in values.items()}


def _batch(plain: dict[str, Any]) -> Batch:
    return Batch(**{**plain, "credit": CreditTable(**plain["credit"])})
