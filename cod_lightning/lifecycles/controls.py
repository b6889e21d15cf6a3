"""Controls: a program as it is, but for what its tasks see of the context, or where that comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cod_lightning.lifecycles.base import Agent, Program, Shown
from cod_lightning.lifecycles.cod import ConnectTheDots
from cod_lightning.types import Episode, EpisodeKind, Pack, Task


@dataclass(frozen=True, kw_only=True)
class Blanked(Program):
    """The context is kept and rewritten as usual, and no task sees it."""

    program: Program = ConnectTheDots()  # noqa: RUF009  (frozen)

    async def __call__(self, agent: Agent, pack: Pack) -> None:
        await self.program(_Blanked(agent), pack)


@dataclass(frozen=True, kw_only=True, eq=False)
class Provided(Program):
    """Each task begins with a context that the agent did not write; nothing is rewritten."""

    contexts: Mapping[str, Sequence[Any]]
    """Pack -> [N] the state that each task begins with; None leaves the task out."""
    shown: Shown = Shown.OWN
    program: Program = ConnectTheDots()  # noqa: RUF009  (frozen)

    async def __call__(self, agent: Agent, pack: Pack) -> None:
        await self.program(_Provided(agent, self.contexts[pack.id], self.shown), pack)


class _Blanked:
    """The agent, whose tasks do not see its context."""

    def __init__(self, agent: Agent) -> None:
        self._agent, self.sibling, self.rewrite = agent, agent.sibling, agent.rewrite
        self.ask, self.fork, self.skip = agent.ask, agent.fork, agent.skip

    async def solve(
        self, task: Task, *, again: bool = False, shown: Shown = Shown.EMPTY, context: Any = None
    ) -> Episode:
        return await self._agent.solve(task, again=again, shown=shown, context=context)


class _Provided(_Blanked):
    """The agent, whose tasks begin with these contexts."""

    def __init__(self, agent: Agent, contexts: Sequence[Any], shown: Shown) -> None:
        super().__init__(agent)
        self._contexts, self._shown = iter(contexts), shown
        self.rewrite = self._left_out

    async def solve(
        self, task: Task, *, again: bool = False, shown: Shown = Shown.EMPTY, context: Any = None
    ) -> Episode:
        provided = next(self._contexts)
        if provided is None:
            left_out = self._agent.skip(EpisodeKind.SOLVE)
            assert left_out is not None, "a task that is left out has its place"
            return left_out
        return await self._agent.solve(task, shown=self._shown, context=provided)

    async def _left_out(self, solved: Episode) -> Episode | None:
        return self._agent.skip(EpisodeKind.UPDATE)
