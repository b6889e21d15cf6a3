"""Training groups under way while weights change: each is begun and taken by itself, so a straggler delays its group alone."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from cod_lightning.rollout.ahead import RolloutAhead
from cod_lightning.rollout.deadlines import Liveness
from cod_lightning.rollout.group import collected_by_growth, prepare
from cod_lightning.types import Group

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
            under_way = (await asyncio.wait(under_way, timeout=_LOOK_S))[1]


async def _to_its_end(future: "Future[tuple[Group, float]]", play: Callable[[], Coroutine[Any, Any, Group]]) -> None:
    began = time.perf_counter()
    try:
        group = await play()
    except BaseException as error:  # raised again where it is taken
        future.set_exception(error)
    else:
        future.set_result((group, time.perf_counter() - began))
