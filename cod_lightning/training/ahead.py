"""Rollouts ahead of training: which groups begin, which a rollout takes, and what of them a checkpoint keeps."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from cod_lightning.errors import ConfigError, TooManyFailures
from cod_lightning.ranks import gathered, num_ranks, owners, rank
from cod_lightning.rollout import transcript
from cod_lightning.rollout.ahead import Begun, GroupsAhead
from cod_lightning.rollout.group import run_group
from cod_lightning.rollout.runner import RolloutPart
from cod_lightning.rollout.stats import stop_if_too_many
from cod_lightning.training.packs import PackChoice
from cod_lightning.training.played import Contexts, PlayedPack, PlayedRollout
from cod_lightning.types import Group, Pack

if TYPE_CHECKING:
    from cod_lightning.training.rollouts import TrainingRollouts

_OVERTAKEN = "rollout/num_overtaken_groups"
"""Groups of all ranks that began before one of the latest rollout, and are still under way."""


class GroupKey(NamedTuple):
    """What a group ahead is known by."""

    choice: PackChoice
    rollout: int
    """Number of the rollout that training took when it began; the weights that began it are those of then."""


class CompleteGroup(NamedTuple):
    """What came of it."""

    group: Group
    seconds: float
    contexts: Contexts | None = None
    """Of a group that a checkpoint kept: a transcript does not keep states of contexts as they were."""


class Taken(NamedTuple):
    """What is ahead of the next updates."""

    rollout: PlayedRollout | None
    """None where none was begun: it is played now."""
    dropped: Sequence[PlayedRollout]
    """Those that nothing is trained on any more."""
    figures: dict[str, float]
    """What is logged of it."""


class RolloutBuffer(ABC):
    """Which of the rollouts ahead is trained on next; a value of `data.max_staleness`. It is the same on every rank.

    `trained` is how many rollouts were trained on so far.
    """

    rollouts_per_sync: int
    """Rollouts that are trained on between two weight syncs."""
    versions: int
    """Policy versions, of which each sync makes one, that a rollout may be behind the weights."""

    @abstractmethod
    def num_to_begin(self, trained: int, needed: float) -> int:
        """How many rollouts begin now, before the next of `needed` ones."""

    @abstractmethod
    def begin(self, trained: int, *identity: int) -> None:
        """A rollout is begun; `identity` is its own, for randomness."""

    @abstractmethod
    def num_eligible(self, trained: int) -> int:
        """How many of the oldest can be chosen."""

    @abstractmethod
    def choose(self, trained: int) -> tuple[int, int | None]:
        """How many of the oldest are dropped, and the place of the one to train on without them; None where nothing is left."""

    @abstractmethod
    def keep(self, num: int) -> None:
        """Forget all but so many of the oldest."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """In plain containers; a part of every checkpoint."""

    @abstractmethod
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state."""


@dataclass(kw_only=True)
class RolloutsAhead:
    """The groups of `data.max_staleness` rollouts, or of those in the buffer; each rank plays and takes its own share of them.

    Source, where weights change in flight: PipelineRL (arXiv 2509.19128) and AReaL (arXiv 2505.24298), whose trainers take what is
    complete, within a bound of the staleness. What differs: a group is complete once all its lifecycles are.
    """

    rollouts: "TrainingRollouts"
    """Whose groups they are."""
    _counted: int = 0
    _restored: list[dict[str, Any]] = field(default_factory=list)
    """What a checkpoint kept, until the engine serves."""

    @property
    def groups(self) -> GroupsAhead:
        """This rank's."""
        return self.rollouts.runner.ahead

    @property
    def num_own(self) -> int:
        """Groups of a rollout that are this rank's."""
        return self.rollouts.packs_per_rollout // num_ranks()

    @property
    def beside(self) -> bool:
        """Whether rollouts are under way beside others: weights change in flight, and no buffer has them one after another."""
        return self.rollouts.runner.engine.in_flight and self.rollouts.buffer is None

    @property
    def in_order(self) -> bool:
        """Whether a rollout takes those that began first."""
        return self.rollouts.in_order or not self.beside

    # ------------------------------------------------------------------ what begins

    def begin(self, number: int, first: int) -> None:
        """Begin what is to be ahead of training after rollout `number`; `first` training packs were taken.

        The packs are chosen here and now, on all ranks at the same place in the order of observations. Where that fails it is
        done again, and raises, when training needs them.
        """
        buffer, needed, size = self.rollouts.buffer, self.rollouts.num_needed(), self.num_own
        if buffer is None:  # a group that is overtaken may be one version older
            most = min(self.rollouts.max_staleness - (not self.in_order), needed)
        else:
            most = len(self.groups.begun) // size + buffer.num_to_begin(number, needed)
        with suppress(ConfigError):
            while (num := len(self.groups.begun)) < most * size:
                self._draw(number, first)
                if buffer is not None:
                    buffer.begin(number, self.rollouts.seed, first + num * num_ranks())

    def _draw(self, number: int, first: int) -> None:
        """Begin the groups of one more rollout."""
        waiting = len(self.groups.begun) * num_ranks()
        drawn = self.rollouts.draw(first + waiting, self.rollouts.packs_per_rollout, waiting)
        own = [one for one in drawn if one.rank == rank()]
        self._play([(self.groups.add(GroupKey(one.choice, number)), one.pack) for one in own])

    def _play(self, groups: Sequence[tuple[Any, Pack]]) -> None:
        packs = [pack for _, pack in groups]
        plays = [(future, partial(self._played, packs, g)) for g, (future, _) in enumerate(groups)]
        self.groups.play(plays, beside=self.beside)

    async def _played(self, packs: Sequence[Pack], g: int) -> CompleteGroup:
        """Group g of these, which begin together."""
        if not g:
            self.rollouts.runner.begin("train", len(packs) * self.rollouts.group_size, max(map(len, packs)))
        began = time.perf_counter()
        group = await run_group(packs[g], self.rollouts.group_size, self.rollouts.setting())
        return CompleteGroup(group, time.perf_counter() - began)

    # ------------------------------------------------------------------ what is taken

    def take(self, number: int, first: int) -> Taken:
        """Rollout `number`, from training pack `first` on, once it is complete. Raises what ended it."""
        self._restore()
        groups, buffer, size = self.groups, self.rollouts.buffer, self.num_own
        if 0 < len(groups.begun) < size:  # of a checkpoint with smaller rollouts
            self._draw(number, first)
        if buffer is not None:
            return self._chosen(buffer, number)
        rollout, overtaken = None, 0
        if groups.begun:
            bound = self.rollouts.max_staleness
            due = groups.begun if self.in_order else [one for one in groups.begun if number - one.key.rollout >= bound]
            with self.rollouts.runner.interruptible():  # a signal ends the wait
                taken = groups.complete(size, due)
            overtaken = groups.begun.index(taken[-1]) + 1 - len(taken)
            rollout = self._taken(taken)
        return Taken(rollout, (), {_OVERTAKEN: float(sum(gathered(overtaken)))} if self.beside else {})

    def _chosen(self, buffer: RolloutBuffer, number: int) -> Taken:
        """The rollout that the buffer chooses."""
        groups, size = self.groups, self.num_own
        buffer.keep(len(groups.begun) // size)  # a run before this one may have given up others
        with self.rollouts.runner.interruptible():
            groups.settle(groups.begun[: size * buffer.num_eligible(number)])
        num_dropped, place = buffer.choose(number)
        dropped = [self._taken(groups.begun[:size]) for _ in range(num_dropped)]
        rollout = None if place is None else self._taken(groups.begun[size * place :][:size])
        return Taken(rollout, dropped, {"train/dropped_rollouts": float(num_dropped)})

    def _taken(self, taken: Sequence[Begun]) -> PlayedRollout:
        """A rollout of all ranks: its packs in the order of updates, and of the ranks in each."""
        own: list[CompleteGroup] = self.groups.take(taken)
        of_ranks, groups = [iter(of_rank) for of_rank in gathered([one.key.choice for one in taken])], iter(own)
        packs: list[PlayedPack] = []
        for r in owners(self.rollouts.packs_per_rollout, self.rollouts.num_shares):
            choice = next(of_ranks[r])
            if r == rank():
                one = next(groups)
                packs.append(PlayedPack(choice, one.group.pack, r, one.group, one.contexts))
            else:
                packs.append(PlayedPack(choice, self.rollouts.packs.pack(choice), r))
        before, self._counted = self._counted, self.rollouts.runner.engine.num_interrupted_turns
        part = RolloutPart(
            groups=[one.group for one in own],
            seconds=max(one.seconds for one in own),
            replacing=False,
            num_interrupted_turns=self._counted - before,
        )
        return PlayedRollout(packs=packs, parts=[part])

    # ------------------------------------------------------------------ checkpoints

    def state_dict(self) -> dict[str, Any]:
        """The groups of all ranks, those that are complete with their lifecycles; every rank has to call it.

        They are waited for, unless weights change in flight.
        """
        self.rollouts.runner.settle()
        own = [*self._restored, *self._saved()]
        of_ranks = [iter(of_rank) for of_rank in gathered(own)]
        buffer = {} if self.rollouts.buffer is None else {"buffer": self.rollouts.buffer.state_dict()}
        return {"ahead": [next(of_ranks[r]) for r in self._owners(len(own) * num_ranks())]} | buffer

    def _owners(self, num: int) -> list[int]:
        """The rank that plays each of so many groups: as in a rollout, and beyond whole rollouts by turns."""
        size = self.rollouts.packs_per_rollout
        return owners(size, self.rollouts.num_shares) * (num // size) + [n % num_ranks() for n in range(num % size)]

    def _saved(self) -> Iterator[dict[str, Any]]:
        """This rank's. A rollout that lost more lifecycles than may fail is about to end the run: like what is not complete it is
        played again by the run that goes on."""
        begun, size = self.groups.begun, self.num_own
        for rollout in (begun[start : start + size] for start in range(0, len(begun), size)):
            complete = [one.future for one in rollout if one.future.done() and not one.future.exception()]
            played: dict[Any, CompleteGroup] = {future: future.result() for future in complete}
            groups = [one.group for one in played.values()]
            try:
                stop_if_too_many("train", groups, self.rollouts.runner.max_failed_fraction)
            except TooManyFailures:
                played = {}
            for one in rollout:
                yield self._record(one.key, played.get(one.future))

    def _record(self, key: GroupKey, played: CompleteGroup | None) -> dict[str, Any]:
        record: dict[str, Any] = {"choice": asdict(key.choice), "rollout": key.rollout, "lines": None}
        if played is None:
            return record
        needed, contexts = self.rollouts.packs.source.needs_contexts, played.contexts
        return record | {
            "lines": transcript.dump(played.group),
            "seconds": played.seconds,
            "contexts": contexts or self.rollouts.contexts_of(played.group) if needed else None,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Have these groups ahead again, in place of any others; another number of ranks shares them out anew."""
        kept = state_dict["ahead"]
        self.groups.drop()
        self._restored = [one for one, r in zip(kept, self._owners(len(kept)), strict=True) if r == rank()]
        if self.rollouts.buffer is not None and "buffer" in state_dict:
            self.rollouts.buffer.load_state_dict(state_dict["buffer"])

    def _restore(self) -> None:
        """What was not complete is played again, now that the engine serves.

        Packs are drawn again by their choices, since a transcript keeps the specs of tasks as plain values.
        """
        again: list[tuple[Any, Pack]] = []
        for kept in self._restored:
            key = GroupKey(PackChoice(**kept["choice"]), kept["rollout"])
            future, pack = self.groups.add(key), self.rollouts.packs.pack(key.choice)
            if kept["lines"] is None:
                again.append((future, pack))
            else:
                (group,) = transcript.load(kept["lines"])
                future.set_result(CompleteGroup(structs.replace(group, pack=pack), kept["seconds"], kept["contexts"]))
        if again:
            self._play(again)
        self._restored.clear()
