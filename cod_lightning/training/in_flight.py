"""Training groups under way while weights change: each is begun and taken by itself, so a straggler delays its group alone.

Which groups an update takes, which begin, and what of them a checkpoint keeps.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from cod_lightning.ranks import gathered, num_ranks, owners, rank
from cod_lightning.rollout import transcript
from cod_lightning.rollout.ahead import RolloutAhead
from cod_lightning.rollout.deadlines import Liveness
from cod_lightning.rollout.group import collected_by_growth, prepare
from cod_lightning.rollout.runner import RolloutPart
from cod_lightning.rollout.stats import count_faults
from cod_lightning.training.packs import PackChoice
from cod_lightning.training.played import PlayedPack
from cod_lightning.types import Group, Pack

if TYPE_CHECKING:
    from cod_lightning.training.rollouts import TrainingRollouts

_LOOK_S = 0.02
"""Between two looks for groups to begin."""


class GroupInFlight(NamedTuple):
    """A group that was begun: what it is known by, when it began, and what will come of it."""

    key: Any
    rollout: int
    """Number of the rollout that training took when it began; the weights that began it are those of then."""
    place: int
    """Groups that were begun before it."""
    future: "Future[tuple[Group, float]]"
    """The group, and the seconds that it took."""


class GroupsInFlight(RolloutAhead):
    """Groups ahead of training, all under way at the same time in one event loop.

    Args:
        liveness: Marked by all episodes; `give_up` ends them through it.
        watched: Entered for as long as any is under way.
    """

    def __init__(self, liveness: Liveness, watched: Callable[[], AbstractContextManager[Any]]) -> None:
        super().__init__(liveness)
        self._watched = watched
        self._num_begun = 0
        self.begun: list[GroupInFlight] = []
        """In the order in which they were begun, without those that are taken."""

    def begin_group(self, key: Any, rollout: int, play: Callable[[], Coroutine[Any, Any, Group]]) -> None:
        """Play it beside all others that are under way."""
        self.begin(play)
        self._note(key, rollout)

    def put_group(self, key: Any, rollout: int, played: tuple[Group, float]) -> None:
        """Have a group wait that is complete: one of a checkpoint."""
        self.put(played)
        self._note(key, rollout)

    def _note(self, key: Any, rollout: int) -> None:
        self.begun.append(GroupInFlight(key, rollout, self._num_begun, self._waiting[-1]))
        self._num_begun += 1

    def complete(self, count: int, rollout: int, bound: int, *, in_order: bool) -> list[GroupInFlight]:
        """That many groups for this rollout, once they are complete, without taking them.

        In order they are those that were begun first; else those that would be too old, by `bound`, in the next rollout, and then
        the first that are complete.
        """
        began = time.perf_counter()
        due = self.begun[:count] if in_order else [one for one in self.begun if rollout - one.rollout >= bound][:count]
        wait([one.future for one in due])
        others, needed = [one for one in self.begun if one not in due], count - len(due)
        while len(over := [one for one in others if one.future.done()]) < needed:
            wait([one.future for one in others if not one.future.done()], return_when=FIRST_COMPLETED)
        self._waited_s += time.perf_counter() - began
        chosen = [*due, *over[:needed]]
        return [one for one in self.begun if one in chosen]

    def take_groups(self, taken: Sequence[GroupInFlight]) -> None:
        """They are not in flight any more. Raises what ended one of them."""
        for one in taken:
            one.future.result()
        self.begun = [one for one in self.begun if one not in taken]
        self._waiting = deque(one.future for one in self.begun)

    @contextmanager
    def between(self) -> Iterator[None]:
        """Wait for all of them; none begins within, since the thread that enters this begins them."""
        self.settle()
        yield

    def drop(self) -> None:
        super().drop()
        self.begun.clear()

    def give_up(self) -> None:
        super().give_up()
        self.begun.clear()

    def _play(self) -> None:
        with self._watched(), collected_by_growth():
            asyncio.run(self._drive())

    async def _drive(self) -> None:
        prepare(asyncio.get_running_loop(), self._liveness)
        under_way = set[asyncio.Task[None]]()
        while True:
            with self._guard:
                begun = list(self._plays)
                self._plays.clear()
                if not begun and not under_way:
                    self._playing = False
                    return
            under_way |= {asyncio.create_task(_to_its_end(*one)) for one in begun}
            # all tasks are cancelled where they are given up; others may be begun after that
            with suppress(asyncio.CancelledError):
                under_way = (await asyncio.wait(under_way, timeout=_LOOK_S))[1]


async def _to_its_end(future: "Future[tuple[Group, float]]", play: Callable[[], Coroutine[Any, Any, Group]]) -> None:
    began = time.perf_counter()
    try:
        group = await play()
    except BaseException as error:  # raised again where it is taken
        future.set_exception(error)
    else:
        future.set_result((group, time.perf_counter() - began))


@dataclass(kw_only=True)
class RolloutsInFlight:
    """The groups of `data.max_staleness` rollouts are under way at a time; each rank plays and takes its own share of them.

    Source: PipelineRL (arXiv 2509.19128) and AReaL (arXiv 2505.24298), whose trainers take what is complete, within a bound of the
    staleness. What differs: a group is complete once all its lifecycles are.
    """

    rollouts: "TrainingRollouts"
    """Whose groups they are."""
    overtaken: int = 0
    """Groups of all ranks that began before one of the latest rollout, and are still under way."""
    _groups: GroupsInFlight | None = None
    _counted: int = 0
    _restored: list[dict[str, Any]] = field(default_factory=list)

    @property
    def groups(self) -> GroupsInFlight:
        """Those under way; the runner's from the first use on, when the engine is known to take weights meanwhile."""
        if self._groups is None:
            watched = partial(self.rollouts.runner.watched, "the rollouts in flight")
            self._groups = GroupsInFlight(self.rollouts.runner.liveness, watched)
            self.rollouts.runner.ahead_by(self._groups)
        return self._groups

    @property
    def num_own(self) -> int:
        """Groups of a rollout that are this rank's."""
        return self.rollouts.packs_per_rollout // num_ranks()

    def take(self, number: int, first: int) -> tuple[list[PlayedPack], RolloutPart] | None:
        """Rollout `number`, from training pack `first` on; None where no group was begun before. Every rank has to call it."""
        for kept in self._restored:
            self._again(kept)
        self._restored.clear()
        if not self.groups.begun:
            return None
        if len(self.groups.begun) < self.num_own:
            self._draw(number, first)
        with self.rollouts.runner.interruptible():
            taken = self.groups.complete(
                self.num_own, number, self.rollouts.max_staleness, in_order=self.rollouts.in_order
            )
        self.groups.take_groups(taken)
        self.overtaken = sum(gathered(sum(one.place < taken[-1].place for one in self.groups.begun)))
        return self._of_all_ranks(taken), self._part(taken)

    def _of_all_ranks(self, taken: Sequence[GroupInFlight]) -> list[PlayedPack]:
        """In the order of updates, and of the ranks in each."""
        of_ranks = [iter(of_rank) for of_rank in gathered([one.key for one in taken])]
        groups = iter([one.future.result()[0] for one in taken])
        found: list[PlayedPack] = []
        for r in owners(self.rollouts.packs_per_rollout, self.rollouts.updates_per_rollout):
            choice = next(of_ranks[r])
            group = next(groups) if r == rank() else None
            found.append(
                PlayedPack(choice, self.rollouts.packs.pack(choice) if group is None else group.pack, r, group)
            )
        return found

    def _part(self, taken: Sequence[GroupInFlight]) -> RolloutPart:
        played, engine = [one.future.result() for one in taken], self.rollouts.runner.engine
        before, self._counted = self._counted, engine.num_interrupted_turns
        return RolloutPart(
            groups=[group for group, _ in played],
            seconds=max(seconds for _, seconds in played),
            replacing=False,
            num_interrupted_turns=self._counted - before,
        )

    def begin(self, number: int, first: int) -> None:
        """Begin what training may take after rollout `number`; `first` training packs were taken."""
        assert self.rollouts.num_ahead is not None, "rollouts ahead of training"
        while len(self.groups.begun) < self.rollouts.num_ahead() * self.num_own:
            self._draw(number, first)

    def _draw(self, number: int, first: int) -> None:
        """Begin the groups of one more rollout."""
        waiting = len(self.groups.begun) * num_ranks()
        with self.rollouts.runner.phase("choosing training packs"):
            drawn = self.rollouts.packs.draw(first + waiting, self.rollouts.packs_per_rollout, waiting)
        for (choice, pack), of in zip(drawn, owners(len(drawn), self.rollouts.updates_per_rollout), strict=True):
            if of == rank():
                self._begin(choice, pack, number)

    def _begin(self, choice: PackChoice, pack: Pack, number: int) -> None:
        self.groups.begin_group(choice, number, partial(self.rollouts.play_group, pack))

    def state(self) -> list[dict[str, Any]]:
        """The groups in flight of all ranks, those that are complete with their lifecycles; every rank has to call it."""
        own = [*self._restored, *([] if self._groups is None else map(self._saved, self._groups.begun))]
        return [kept for of_ranks in zip(*gathered(own), strict=True) for kept in of_ranks]

    def _saved(self, one: GroupInFlight) -> dict[str, Any]:
        kept: dict[str, Any] = {"choice": asdict(one.key), "rollout": one.rollout, "lines": None, "seconds": 0.0}
        if one.future.done() and not one.future.exception() and not self.rollouts.packs.source.needs_contexts:
            group, seconds = one.future.result()
            num_failed = sum(count_faults([group]).values())
            # one that lost more is played again by the run that goes on, as one that is under way
            if num_failed <= self.rollouts.runner.max_failed_fraction * len(group.lifecycles):
                kept |= {"lines": transcript.dump(group), "seconds": seconds}
        return kept

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Have these groups in flight again: those that were complete, and, once the engine serves, those that were not."""
        self._restored = state[rank() :: num_ranks()]

    def _again(self, kept: dict[str, Any]) -> None:
        choice = PackChoice(**kept["choice"])
        pack = self.rollouts.packs.pack(choice)
        if kept["lines"] is None:
            self._begin(choice, pack, kept["rollout"])
            return
        (group,) = transcript.load(kept["lines"])
        self.groups.put_group(choice, kept["rollout"], (structs.replace(group, pack=pack), kept["seconds"]))
