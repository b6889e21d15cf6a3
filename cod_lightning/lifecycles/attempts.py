"""Extra attempts at a task from a snapshot of a lifecycle: what else would have come of this very moment?

    ... update_0 -> [snapshot] -> solve_1 -> update_1 -> ...
                        |-> solve_1'   same world, same context, other noise
                        `-> solve_1"   same world, without the context that update_0 wrote

Nothing comes after an attempt. Source: the local re-rolls of Memory-R2 (arXiv 2605.21768), which compare from one
intermediate state; there memory operations are rolled again, here solve episodes. How attempts become credit is in
`cod_lightning/credit/credited.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from cod_lightning.errors import ConfigError
from cod_lightning.lifecycles.base import Agent, Program
from cod_lightning.lifecycles.cod import ConnectTheDots
from cod_lightning.seeds import derive_seed
from cod_lightning.types import AttemptKind, Episode, Pack, Task


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """Some solve episodes of training are attempted several times from one context and one state of the world.

    Never those at position 0: siblings share the empty context and the fresh world there already.
    """

    attempts: int = 4
    """M, the lifecycle's own solve episode included; at least 2."""
    fraction: float = 0.25
    """Of the solve episodes at `positions`, drawn from the run seed."""
    positions: tuple[int, ...] | None = None
    """Where, counted from 0; null: everywhere but at 0."""

    def check(self, num_tasks: int) -> None:
        """Every position has a solve episode whose context was written."""
        outside = [position for position in self.positions or () if not 1 <= position < num_tasks]
        if outside or self.positions == ():
            expected = f"positions from 1 to {num_tasks - 1}, since at 0 siblings share the empty context already"
            raise ConfigError("data.anchors.positions", list(self.positions or ()), expected, "Null takes all of them.")


@dataclass(frozen=True, kw_only=True)
class Counterfactual:
    """Some tasks of training, each the first after an update, are also attempted without the context that it wrote."""

    attempts: int = 2
    """Without the context, at least 1; with it there is the lifecycle's own solve episode, and `data.anchors`."""
    fraction: float = 0.25
    """Of the contexts, drawn from the run seed."""
    instead: Literal["previous", "empty"] = "previous"
    """What the solve prompt shows: the context before the rewrite, so that its worth is what the rewrite added, or none."""


@dataclass(frozen=True, kw_only=True)
class Branching(Program):
    """A program some of whose tasks are attempted again beside it, from the moment at which they begin."""

    program: Program = ConnectTheDots()  # noqa: RUF009  (frozen)
    anchors: Anchors | None = None
    counterfactual: Counterfactual | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Checked here, not in the two classes: a parser that may also take null there would hide their error."""
        if self.anchors is not None:
            why = "an attempt is compared with the others from its context"
            _check("anchors", self.anchors, 2, why)
        if self.counterfactual is not None:
            _check("counterfactual", self.counterfactual, 1, "what a context earned is compared with it")

    async def __call__(self, agent: Agent, pack: Pack) -> None:
        attempting: Any = _Attempting(agent, pack, self)
        await self.program(attempting, pack)

    @property
    def num_attempts(self) -> int:
        own = 0 if self.anchors is None else self.anchors.attempts - 1
        return self.program.num_attempts + own + (0 if self.counterfactual is None else self.counterfactual.attempts)

    def words(self) -> tuple[str, ...]:
        return self.program.words()

    @property
    def held_out(self) -> Program:
        return self.program.held_out


class _Attempting:
    """The agent; before it solves a task it begins the attempts at it."""

    def __init__(self, agent: Agent, pack: Pack, of: Branching) -> None:
        self._agent, self._pack, self._of = agent, pack, of
        self._position, self._rewritten = 0, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    async def solve(self, task: Task, **more: Any) -> Episode:
        for kind, of in self._attempts():
            self._agent.fork(task, kind, of)
        self._position, self._rewritten = self._position + 1, False
        return await self._agent.solve(task, **more)

    async def rewrite(self, solved: Episode, *, skip: bool = False) -> Episode | None:
        updated = await self._agent.rewrite(solved, skip=skip)
        self._rewritten = updated is not None
        return updated

    def _attempts(self) -> Iterator[tuple[AttemptKind, Literal["own", "previous", "empty"]]]:
        """Kind and context of each attempt at the next task."""
        anchors, counterfactual, position = self._of.anchors, self._of.counterfactual, self._position
        if not position:
            return
        anchored = anchors is not None and position in (anchors.positions or (position,))
        if anchors and anchored and self._drawn("anchor", anchors.fraction):
            for _ in range(anchors.attempts - 1):
                yield AttemptKind.SAME_CONTEXT, "own"
        if counterfactual and self._rewritten and self._drawn("counterfactual", counterfactual.fraction):
            for _ in range(counterfactual.attempts):
                yield AttemptKind.WITHOUT_CONTEXT, counterfactual.instead

    def _drawn(self, what: str, fraction: float) -> bool:
        return derive_seed(what, self._of.seed, self._pack.id, self.sibling, self._position) < fraction * 2**63


def _check(key: str, spec: Anchors | Counterfactual, least: int, why: str) -> None:
    if spec.attempts < least:
        expected = f"at least {least}, since {why}"
        raise ConfigError(f"data.{key}.attempts", spec.attempts, expected, f"{2 * least} is a usual number.")
    if not 0 < spec.fraction <= 1:
        remedy = f"0.25 is a usual value; leave out data.{key} for none."
        raise ConfigError(f"data.{key}.fraction", spec.fraction, "in (0, 1]", remedy)
