"""Training groups under way while weights change: each is begun and taken by itself, so a straggler delays its group alone.

Which groups an update takes, which begin, and what of them a checkpoint keeps.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from cod_lightning.ranks import gathered, num_ranks, owners, rank
from cod_lightning.rollout import transcript
from cod_lightning.rollout.ahead import Begun, RolloutAhead
from cod_lightning.rollout.deadlines import Liveness
from cod_lightning.rollout.group import collected_by_growth, prepare, run_group
from cod_lightning.rollout.runner import RolloutPart
from cod_lightning.training.ahead import Taken
from cod_lightning.training.packs import PackChoice
from cod_lightning.training.played import PlayedPack, PlayedRollout
from cod_lightning.types import Group, Pack

if TYPE_CHECKING:
    from cod_lightning.training.rollouts import TrainingRollouts

_LOOK_S = 0.02
"""Between two looks for groups to begin."""
_OVERTAKEN = "rollout/num_overtaken_groups"
"""Groups of all ranks that began before one of the latest rollout, and are still under way."""


class GroupKey(NamedTuple):
    """What a group in flight is known by."""

    choice: PackChoice
    rollout: int
    """Number of the rollout that training took when it began; the weights that began it are those of then."""


class GroupsInFlight(RolloutAhead):
    """Groups ahead of training, all under way at the same time in one event loop: what is begun is a coroutine.

    Args:
        liveness: Marked by all episodes; `give_up` ends them through it.
        watched: Entered for as long as any is under way.
    """

    def __init__(self, liveness: Liveness, watched: Callable[[], AbstractContextManager[Any]]) -> None:
        super().__init__(liveness)
        self._watched = watched

    def complete(self, count: int, rollout: int, bound: int, *, in_order: bool) -> list[Begun]:
        """That many groups for this rollout, once they are complete, without taking them.

        In order they are those that were begun first; else those that would be too old, by `bound`, in the next rollout, and then
        the first that are complete.
        """
        since = time.perf_counter()
        due = self.begun if in_order else [one for one in self.begun if rollout - one.key.rollout >= bound]
        due = due[:count]
        wait([one.future for one in due])
        others, needed = [one for one in self.begun if one not in due], count - len(due)
        while len(over := [one for one in others if one.future.done()]) < needed:
            wait([one.future for one in others if not one.future.done()], return_when=FIRST_COMPLETED)
        self._waited_s += time.perf_counter() - since
        chosen = [*due, *over[:needed]]
        return [one for one in self.begun if one in chosen]

    @contextmanager
    def between(self) -> Iterator[None]:
        """Wait for all of them; none begins within, since the thread that enters this begins them."""
        self.settle()
        yield

    def _play(self) -> None:
        try:
            with self._watched(), collected_by_growth():
                asyncio.run(self._drive())
        except BaseException as error:  # no loop, say for want of files; raised again where they are taken
            with self._guard:
                for future, _ in self._plays:
                    future.set_exception(error)
                self._plays.clear()
                self._playing = False

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
    """The group, and the seconds that it took."""
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

    def take(self, number: int, first: int) -> Taken:
        for kept in self._restored:
            self._again(kept)
        self._restored.clear()
        groups = self.groups
        if not groups.begun:
            return Taken(None, figures={_OVERTAKEN: 0.0})
        if len(groups.begun) < self.num_own:
            self._draw(number, first)
        with self.rollouts.runner.interruptible():
            taken = groups.complete(self.num_own, number, self.rollouts.max_staleness, in_order=self.rollouts.in_order)
        found = [one.future.result() for one in taken]  # raises what ended one of them
        overtaken = groups.begun.index(taken[-1]) + 1 - len(taken)
        groups.begun = [one for one in groups.begun if one not in taken]
        own = [group for group, _ in found]
        played = PlayedRollout(
            packs=self._of_all_ranks([one.key.choice for one in taken], own),
            parts=[self._part(own, max(seconds for _, seconds in found))],
        )
        return Taken(played, figures={_OVERTAKEN: float(sum(gathered(overtaken)))})

    def _of_all_ranks(self, choices: Sequence[PackChoice], own: Sequence[Group]) -> list[PlayedPack]:
        """In the order of updates, and of the ranks in each."""
        of_ranks, groups = [iter(of_rank) for of_rank in gathered(choices)], iter(own)
        found: list[PlayedPack] = []
        for r in owners(self.rollouts.packs_per_rollout, self.rollouts.num_shares):
            choice = next(of_ranks[r])
            group = next(groups) if r == rank() else None
            pack = self.rollouts.packs.pack(choice) if group is None else group.pack
            found.append(PlayedPack(choice, pack, r, group))
        return found

    def _part(self, groups: Sequence[Group], seconds: float) -> RolloutPart:
        before, self._counted = self._counted, self.rollouts.runner.engine.num_interrupted_turns
        interrupted = self._counted - before
        return RolloutPart(groups=groups, seconds=seconds, replacing=False, num_interrupted_turns=interrupted)

    def begin(self, number: int, first: int) -> None:
        # a group that is overtaken may be one version older
        most = min(self.rollouts.max_staleness - (not self.rollouts.in_order), self.rollouts.num_needed())
        while len(self.groups.begun) < most * self.num_own:
            self._draw(number, first)

    def _draw(self, number: int, first: int) -> None:
        """Begin the groups of one more rollout."""
        waiting = len(self.groups.begun) * num_ranks()
        drawn = self.rollouts.draw(first + waiting, self.rollouts.packs_per_rollout, waiting)
        for (choice, pack), of in zip(drawn, owners(len(drawn), self.rollouts.num_shares), strict=True):
            if of == rank():
                self._begin(pack, GroupKey(choice, number))

    def _begin(self, pack: Pack, key: GroupKey) -> None:
        self.groups.begin(lambda: run_group(pack, self.rollouts.group_size, self.rollouts.setting()), key)

    def state_dict(self) -> dict[str, Any]:
        """The groups in flight of all ranks, those that are complete with their lifecycles."""
        own = [*self._restored, *([] if self._groups is None else map(self._saved, self._groups.begun))]
        return {"ahead": [], "in_flight": [kept for of_ranks in zip(*gathered(own), strict=True) for kept in of_ranks]}

    def _saved(self, one: Begun) -> dict[str, Any]:
        choice, rollout = one.key
        kept: dict[str, Any] = {"choice": asdict(choice), "rollout": rollout, "lines": None, "seconds": 0.0}
        if one.future.done() and not one.future.exception() and not self.rollouts.packs.source.needs_contexts:
            group, seconds = one.future.result()
            num_failed = sum(life.failed for life in group.lifecycles)
            # one that lost more is played again by the run that goes on, as one that is under way
            if num_failed <= self.rollouts.runner.max_failed_fraction * len(group.lifecycles):
                kept |= {"lines": transcript.dump(group), "seconds": seconds}
        return kept

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Have these groups in flight again: those that were complete, and, once the engine serves, those that were not."""
        self._restored, self._groups = state_dict.get("in_flight", [])[rank() :: num_ranks()], None

    def _again(self, kept: dict[str, Any]) -> None:
        key = GroupKey(PackChoice(**kept["choice"]), kept["rollout"])
        pack = self.rollouts.packs.pack(key.choice)
        if kept["lines"] is None:
            self._begin(pack, key)
            return
        (group,) = transcript.load(kept["lines"])
        self.groups.put((structs.replace(group, pack=pack), kept["seconds"]), key)
