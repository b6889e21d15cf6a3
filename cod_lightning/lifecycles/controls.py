"""Controls: a program as it is, but for what its tasks see of the context, or where that comes from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cod_lightning.lifecycles.base import Agent, Program, Shown
from cod_lightning.lifecycles.cod import ConnectTheDots
from cod_lightning.types import Episode, EpisodeKind, Pack, Task


@dataclass(frozen=True, kw_only=True, eq=False)
class Controlled(Program):
    """Tasks see so much of the context; with `contexts` each begins with one from elsewhere, and none is rewritten."""

    shown: Shown = Shown.OWN
    contexts: Mapping[str, Sequence[Any]] | None = None
    """Pack -> [N] the state that each task begins with; None leaves the task out."""
    program: Program = ConnectTheDots()  # noqa: RUF009  (frozen)

    async def __call__(self, agent: Agent, pack: Pack) -> None:
        contexts = None if self.contexts is None else iter(self.contexts[pack.id])
        controlled: Any = _Controlled(agent, self.shown, contexts)
        await self.program(controlled, pack)


class _Controlled:
    """The agent, as its tasks are to be played."""

    def __init__(self, agent: Agent, shown: Shown, contexts: Iterator[Any] | None) -> None:
        self._agent, self._shown, self._contexts = agent, shown, contexts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    async def solve(self, task: Task, **more: Any) -> Episode:
        context = None if self._contexts is None else next(self._contexts)
        if self._contexts is not None and context is None:
            return self._agent.skip(EpisodeKind.SOLVE)
        return await self._agent.solve(task, **more | {"shown": self._shown, "context": context})

    async def rewrite(self, solved: Episode) -> Episode | None:
        return await self._agent.rewrite(solved, skip=self._contexts is not None)
