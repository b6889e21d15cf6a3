"""Controls: a program as it is, but for what its tasks see of the context, or where that comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cod_lightning.lifecycles.base import Agent, Ask, Program, Written
from cod_lightning.lifecycles.cod import ConnectTheDots
from cod_lightning.types import Episode, EpisodeKind, Pack, Task


@dataclass(frozen=True, kw_only=True, eq=False)
class Controlled(Program):
    """Tasks are shown another context than theirs; with `contexts` each begins with one from elsewhere, and none is rewritten."""

    shown: Any = None
    """The state that tasks are shown, such as the empty one; None: their own."""
    contexts: Mapping[str, Sequence[Any]] | None = None
    """Pack -> [N] the state that each task begins with; None leaves the task out."""
    program: Program = ConnectTheDots()  # noqa: RUF009  (frozen)
    writes: bool = True
    """Whether all texts that the program asks for are written, or those alone that scripted players write."""

    async def __call__(self, agent: Agent, pack: Pack) -> None:
        contexts = None if self.contexts is None else self.contexts[pack.id]
        controlled: Any = _Controlled(agent, self.shown, contexts, self.writes)
        await self.program(controlled, pack)


class _Controlled:
    """The agent, as its tasks are to be played: each once, since attempts are of the program as it is."""

    def __init__(self, agent: Agent, shown: Any, contexts: Sequence[Any] | None, writes: bool) -> None:
        self._agent, self._shown, self._contexts, self._writes = agent, shown, contexts, writes
        self._position = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    async def solve(self, task: Task, **more: Any) -> Episode:
        how = self._how()
        self._position += 1
        return self._agent.skip(EpisodeKind.SOLVE) if how is None else await self._agent.solve(task, **more | how)

    async def ask(self, task: Task, ask: Ask, **more: Any) -> Written:
        how = self._how()
        if how is None or not (self._writes or ask.scripted):
            return Written.skipped(self._position)
        return await self._agent.ask(task, ask, **more | how)

    async def rewrite(self, solved: Episode, *, skip: bool = False, **more: Any) -> Episode | None:
        return await self._agent.rewrite(solved, skip=skip or self._contexts is not None, **more)

    def fork(self, *_: Any, **__: Any) -> None:
        """No attempt."""

    def _how(self) -> dict[str, Any] | None:
        """How the next task is played in place of how its program has it; None leaves it out."""
        how: dict[str, Any] = {} if self._shown is None else {"shown": self._shown}
        if self._contexts is None:
            return how
        context = next(iter(self._contexts[self._position :]), None)
        return None if context is None else how | {"context": context}
