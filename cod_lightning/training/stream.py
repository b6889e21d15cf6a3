"""The endless row of training updates: rollouts are cut into them; a run stops between any two and resumes exactly.

Items are counted by Lightning, handed on sealed, and fetched only when they are needed.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from cod_lightning.objective.batch import Batch, concatenated
from cod_lightning.ranks import gathered, num_ranks, rank, share
from cod_lightning.rollout.runner import RolloutRunner


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
        return map(Sealed, self.items())

    def __len__(self) -> int:
        return self.length


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """A rollout, and how it is cut into updates."""

    batch: Batch
    """Every row of it, once."""
    shares: Sequence[Sequence[int]]
    """Episodes of each update to come, by their entries in the table; several passes name each several times."""
    num_packs: int
    """Training packs that it took, those that were replaced included."""


class TrainStream:
    """An endless loader whose state is the rollouts begun and the updates of the current one that are still to come.

    It has the length of an epoch, so that Lightning takes so many, or fewer, and never fetches ahead of the weights.

    Args:
        next_rollout: From the number of a rollout and that of its first training pack to the rollout.
        rollouts_per_epoch: Rollouts of an epoch.
        updates_per_rollout: Updates made of a rollout, all passes together.
        runner: Reports updates to observers.
        rollouts_per_sync: Rollouts from one weight sync to the next.
    """

    def __init__(
        self,
        next_rollout: Callable[[int, int], Rollout],
        rollouts_per_epoch: int,
        updates_per_rollout: int,
        runner: RolloutRunner,
        rollouts_per_sync: int = 1,
    ) -> None:
        self._rollouts_per_sync = rollouts_per_sync
        self._next_rollout, self._runner = next_rollout, runner
        self._length = rollouts_per_epoch * updates_per_rollout
        self.num_rollouts = 0
        """Rollouts done."""
        self.num_packs = 0
        """Training packs taken; the cursor over them."""
        self._batch: Batch | None = None
        self._shares: deque[Sequence[int]] = deque()
        """Of `_batch`, the updates still to come."""

    def __len__(self) -> int:
        """Updates of an epoch."""
        return self._length

    def __iter__(self) -> Iterator[Sealed]:
        """All updates to come."""
        while True:
            self._runner.update_begins()
            if not self._shares:
                rollout = self._next_rollout(self.num_rollouts, self.num_packs)
                self._batch, self._shares = rollout.batch, deque(rollout.shares)
                self.num_rollouts += 1
                self.num_packs += rollout.num_packs
            assert self._batch is not None, "updates to come without their rows"
            update = self._batch.of_episodes(self._shares.popleft())
            if not self._shares:
                self._batch = None
            before_sync = -self.num_rollouts % self._rollouts_per_sync
            yield Sealed(replace(update, updates_left=len(self._shares), rollouts_left=before_sync))
            self._runner.update_finished()

    def state_dict(self) -> dict[str, Any]:
        """Nothing: Lightning resumes a loader that has this method, but restores its state too late."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing: the DataModule calls `restore`."""

    def saved(self) -> dict[str, Any]:
        """Where it stands, in plain containers and tensors; of the rollout only the rows that an update still needs, once.

        It is the same on every rank, and every rank has to call it.
        """
        whole, row_ranks = None, None
        if self._batch is not None:
            whole, row_ranks = batch_of_all(self._batch.of_episodes(sorted(set(chain.from_iterable(self._shares)))))
        return {
            "num_rollouts": self.num_rollouts,
            "num_packs": self.num_packs,
            "episodes": [list(share) for share in self._shares],
            "batch": None if whole is None else vars(whole),
            "row_ranks": row_ranks,
            "num_ranks": num_ranks(),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        self.num_rollouts, self.num_packs = saved["num_rollouts"], saved["num_packs"]
        self._shares, self._batch = deque(saved["episodes"]), None
        if saved["batch"] is not None:
            self._batch = own_batch(Batch(**saved["batch"]), saved["row_ranks"], saved["num_ranks"])


def batch_of_all(own: Batch) -> tuple[Batch, Int[Tensor, " B"]]:
    """The rows of all ranks, which a checkpoint keeps, and the rank of each."""
    parts = gathered(own)
    return concatenated(parts), torch.cat([torch.full((len(part),), r) for r, part in enumerate(parts)])


def own_batch(whole: Batch, row_ranks: Int[Tensor, " B"], ranks_before: int) -> Batch:
    """This rank's rows of what `batch_of_all` put together; another number of ranks than before shares its groups out anew."""
    packs = whole.place[:, 0]
    if ranks_before == num_ranks():
        chosen = row_ranks == rank()
    else:
        chosen = torch.isin(packs, torch.tensor(share(packs.unique().tolist()), dtype=torch.long))
    return whole.rows(chosen.nonzero().squeeze(1))
