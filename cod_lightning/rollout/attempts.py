"""Extra attempts at a task from a snapshot of a lifecycle: what else would have come of this very moment?

    ... update_0 -> [snapshot] -> solve_1 -> update_1 -> ...
                        |-> solve_1'   same world, same context, other noise
                        `-> solve_1"   same world, without the context that update_0 wrote

Nothing comes after an attempt. Source: the local re-rolls of Memory-R2 (arXiv 2605.21768), which compare from one
intermediate state; there memory operations are rolled again, here solve episodes. How attempts become credit is in
`cod_lightning/objective/anchors.py`.
"""

import asyncio
import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ConfigError, EnvironmentFailure, described, note_fault
from cod_lightning.rollout.boundaries import FAULTS, crossing
from cod_lightning.rollout.episode import run_solve_episode
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Attempt, AttemptKind, Episode, EpisodeKind, EpisodeStatus, Pack

if TYPE_CHECKING:
    from cod_lightning.rollout.lifecycle import Life


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


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """The beginning of a task in a lifecycle."""

    pack: Pack
    sibling: int
    index: int
    """e of the solve episode."""
    position: int


@dataclass(frozen=True, kw_only=True)
class Branching:
    """Where the lifecycles of a training rollout branch off."""

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

    def states(self, point: BranchPoint, life: "Life") -> list[tuple[AttemptKind, Any]]:
        """Kind and context state of each attempt from that point."""
        out: list[tuple[AttemptKind, Any]] = []
        if point.position == 0:
            return out
        anchors, counterfactual = self.anchors, self.counterfactual
        anchored = anchors is not None and point.position in (anchors.positions or (point.position,))
        if anchors and anchored and self._drawn("anchor", point, anchors.fraction):
            out += [(AttemptKind.SAME_CONTEXT, life.state)] * (anchors.attempts - 1)
        if counterfactual and life.rewritten and self._drawn("counterfactual", point, counterfactual.fraction):
            instead = life.previous if counterfactual.instead == "previous" else life.setting.mechanism.empty()
            out += [(AttemptKind.WITHOUT_CONTEXT, instead)] * counterfactual.attempts
        return out

    def _drawn(self, what: str, point: BranchPoint, fraction: float) -> bool:
        return derive_seed(what, self.seed, point.pack.id, point.sibling, point.position) < fraction * 2**63


def start_attempts(branching: Branching, point: BranchPoint, life: "Life") -> "asyncio.Future[list[Attempt]]":
    """Begin all attempts at a task beside the lifecycle, each in a copy of its environment as it is now."""
    setting, now, task = life.setting, life.env, point.pack.tasks[point.position]
    assert now is not None, "no task begins without an environment"

    async def attempt(number: int, kind: AttemptKind, state: Any, env: TextEnv | EnvironmentFailure) -> Attempt:
        try:
            if isinstance(env, EnvironmentFailure):
                raise env
            try:
                who = f"{life.name}.{point.index}+{number}"
                episode = await run_solve_episode(env, task, state, setting, who, point.position, life.ends)
                episode = await setting.scored(episode, task)
            finally:
                crossing(EnvironmentFailure, env.close)
        except FAULTS as error:
            note_fault(error)
            status = EpisodeStatus.FAILED
            episode = Episode(kind=EpisodeKind.SOLVE, position=point.position, status=status, error=described(error))
        return Attempt(kind=kind, episode=episode)

    def copied() -> TextEnv | EnvironmentFailure:
        try:
            return crossing(EnvironmentFailure, lambda: copy.deepcopy(now))
        except EnvironmentFailure as error:
            return error

    states = branching.states(point, life)
    return asyncio.gather(*(attempt(number, kind, state, copied()) for number, (kind, state) in enumerate(states)))


def _check(key: str, spec: Anchors | Counterfactual, least: int, why: str) -> None:
    if spec.attempts < least:
        expected = f"at least {least}, since {why}"
        raise ConfigError(f"data.{key}.attempts", spec.attempts, expected, f"{2 * least} is a usual number.")
    if not 0 < spec.fraction <= 1:
        remedy = f"0.25 is a usual value; leave out data.{key} for none."
        raise ConfigError(f"data.{key}.fraction", spec.fraction, "in (0, 1]", remedy)
