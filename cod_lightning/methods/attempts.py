"""Extra attempts at a task from a snapshot of a lifecycle: what else would have come of this very moment?

    ... update_0 -> [snapshot] -> solve_1 -> update_1 -> ...
                        |-> solve_1'   same world, same context, other noise
                        `-> solve_1"   same world, without the context that update_0 wrote

Nothing comes after an attempt, and only training makes any. How attempts become credit is in `cod_lightning/credit/credited.py`.

Source: the local re-rolls of Memory-R2 (arXiv 2605.21768), which compare what came of one intermediate state. What differs: solve
episodes are attempted again, where there memory operations are rolled again; attempts without a context are ours.
"""

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from cod_lightning.lifecycles import Agent, ConnectTheDots, Program, Shows
from cod_lightning.ranges import Count, PositiveShare, Several
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Episode, Pack, Task


@dataclass(frozen=True, kw_only=True)
class _Attempted(Program):
    """A program some of whose tasks, the first time that it plays them, are attempted beside it, from the moment they begin."""

    name: ClassVar[str]
    """By which its moments are drawn."""
    after_updates: ClassVar[bool]
    """Whether only those tasks are attempted before which the context was rewritten."""
    program: Program = ConnectTheDots()  # noqa: RUF009  (frozen)
    """What it is made of; it may have attempts of its own."""
    attempts: Count
    fraction: PositiveShare = 0.25
    """Of the moments, drawn by pack, sibling and position."""

    async def __call__(self, agent: Agent, pack: Pack) -> None:
        attempting: Any = _Attempting(agent, pack, self)
        await self.program(attempting, pack)

    @property
    @abstractmethod
    def forks(self) -> Counter[Shows]:
        """Attempts at a task, by what they are shown."""

    @property
    def beside(self) -> Counter[Shows]:
        return self.program.beside + self.forks

    def words(self) -> tuple[str, ...]:
        return self.program.words()

    @property
    def held_out(self) -> Program:
        return self.program.held_out


@dataclass(frozen=True, kw_only=True)
class Anchored(_Attempted):
    """Some solve episodes are attempted several times from one context and one state of the environment.

    Never those at position 0: siblings share the empty context and the fresh environment there already.
    """

    name, after_updates = "same_context", False
    attempts: Several = 4
    """M, the lifecycle's own solve episode included, which is compared with the others."""

    @property
    def forks(self) -> Counter[Shows]:
        return Counter({"own": self.attempts - 1})


@dataclass(frozen=True, kw_only=True)
class Counterfactual(_Attempted):
    """Some tasks, each the first after an update, are also attempted without the context that it wrote, and without a note that the
    program made of it, to measure its worth."""

    name, after_updates = "without_context", True
    attempts: Count = 2
    """With the context before the rewrite in its place, so that its worth is what the rewrite added; with it there is the
    lifecycle's own solve episode, and what an `Anchored` inside adds."""

    @property
    def forks(self) -> Counter[Shows]:
        return Counter({"previous": self.attempts})


class _Attempting:
    """The agent; before it solves a task it begins the attempts at it."""

    def __init__(self, agent: Agent, pack: Pack, of: _Attempted) -> None:
        self._agent, self._pack, self._of = agent, pack, of
        self._position, self._rewritten = 0, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    async def solve(self, task: Task, **more: Any) -> Episode:
        of, position = self._of, self._position
        drawn = derive_seed(of.name, self._pack.id, self.sibling, position) < of.fraction * 2**63
        elsewhere = more.get("again") or any(more.get(state) is not None for state in ("context", "shown"))
        if position and drawn and not elsewhere and (self._rewritten or not of.after_updates):
            for shows in of.forks.elements():
                # a plan, say, was written in view of the context
                self._agent.fork(task, shows, more.get("note", "") if shows == "own" else "")
        self._position, self._rewritten = position + 1, False
        return await self._agent.solve(task, **more)

    async def rewrite(self, solved: Episode, **more: Any) -> Episode | None:
        updated = await self._agent.rewrite(solved, **more)
        self._rewritten = updated is not None
        return updated
