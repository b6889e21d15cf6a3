"""The order of the episodes in a lifecycle, as data: everything else reads it here.

    every: 1   solve_0 update_0 solve_1 update_1 solve_2          (Connect the Dots, arXiv 2606.20002)
    every: 2   solve_0 solve_1 update_1 solve_2
    every: null   solve_0 solve_1 solve_2
    solves: 2   propose_0 solve_0 solve_1 update_1 propose_2 solve_2 solve_3

To add an order: one subclass of `LifecyclePlan`, chosen with `data.plan.class_path`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cod_lightning.errors import ConfigError, check_at_least
from cod_lightning.types import EpisodeKind


class PlannedEpisode(NamedTuple):
    """One place in the order."""

    kind: EpisodeKind
    position: int
    """0-based index of the task that it solves, or that it follows."""


class LifecyclePlan(ABC):
    """The order of episodes for packs of any size: a pure function of the number of tasks.

    Orders of shorter packs agree with those of longer ones up to the last task, so that an agent without a last task
    (`deploy`) follows the same plan. Plans are hashable, as frozen dataclasses are.
    """

    @abstractmethod
    def order(self, num_tasks: int) -> Sequence[PlannedEpisode]:
        """The E episodes of a lifecycle through N tasks. Use `planned`, which also checks them."""

    def task_of(self, position: int) -> int:
        """Position of the task that this solve episode plays: an earlier one where it is played again, from the same context."""
        return position

    @property
    def held_out(self) -> "LifecyclePlan":
        """What everything but training follows, where the agent proposes no tasks: validation, suites, references, agents."""
        return self


@dataclass(frozen=True, kw_only=True)
class UpdateEvery(LifecyclePlan):
    """Solves every task, and updates the context after every `every`-th of them, but not after the last."""

    every: int | None = 1
    """Tasks from one update to the next; 1 is the paper's plan. Null: no updates, for contexts that are written within tasks."""

    def __post_init__(self) -> None:
        check_at_least("data.plan.every", self.every, 1, "1 updates the context after every task.")

    def order(self, num_tasks: int) -> Sequence[PlannedEpisode]:
        """Solve n, then update n where n + 1 is a multiple of `every`.

        >>> [f"{kind} {position}" for kind, position in UpdateEvery(every=2).order(3)]
        ['solve 0', 'solve 1', 'update 1', 'solve 2']
        """
        out: list[PlannedEpisode] = []
        for position in range(num_tasks):
            out.append(PlannedEpisode(EpisodeKind.SOLVE, position))
            if self.every and (position + 1) % self.every == 0 and position < num_tasks - 1:
                out.append(PlannedEpisode(EpisodeKind.UPDATE, position))
        return out


@dataclass(frozen=True, kw_only=True)
class ProposeAndSolve(LifecyclePlan):
    """The agent proposes a task, solves it `solves` times from the same context, then updates the context, and so on.

    One policy in two roles. A proposal is paid by how learnable its task is (`rewards.Learnability`) and by nothing else, and is
    compared with the proposals of siblings at its position, a solve episode with their solve episodes. Outside training each task
    is solved once and followed by an update, as with `UpdateEvery`.

    Source: Absolute Zero (arXiv 2505.03335) has one policy propose and solve tasks, with a baseline by role and kind of task;
    R-Zero (arXiv 2508.05004) trains two policies in turn; SPIRAL (arXiv 2506.24119) plays games of two roles with a moving average
    by role as baseline. Differs: proposals are made within a lifecycle, with the context that the agent has written, of the pack's
    own hidden rule, and the environment knows the answer. Solve episodes of siblings are compared though they may have proposed
    different tasks.
    """

    solves: int = 4
    """Solve episodes of one task, at least 2, since of one the success is 0 or 1; a divisor of `data.pack_size`."""
    proposes: bool = True
    """False plays the pack's own task as often at each of these places: what proposals are compared with."""

    def __post_init__(self) -> None:
        check_at_least("data.plan.solves", self.solves, 2, "4 is the default.")

    def order(self, num_tasks: int) -> list[PlannedEpisode]:
        """Rounds of one proposal, its solve episodes, and an update after all but the last.

        >>> [f"{kind} {position}" for kind, position in ProposeAndSolve(solves=2).order(4)]
        ['propose 0', 'solve 0', 'solve 1', 'update 1', 'propose 2', 'solve 2', 'solve 3']
        """
        if num_tasks % self.solves:
            expected = f"a divisor of the {num_tasks} tasks of a pack, since each proposal is solved that often"
            raise ConfigError("data.plan.solves", self.solves, expected, "Change it, or data.pack_size.")
        out: list[PlannedEpisode] = []
        for first in range(0, num_tasks, self.solves):
            last = first + self.solves - 1
            out += [PlannedEpisode(EpisodeKind.PROPOSE, first)] * self.proposes
            out += [PlannedEpisode(EpisodeKind.SOLVE, position) for position in range(first, last + 1)]
            out += [PlannedEpisode(EpisodeKind.UPDATE, last)] * (last < num_tasks - 1)
        return out

    def task_of(self, position: int) -> int:
        return position - position % self.solves

    @property
    def held_out(self) -> LifecyclePlan:
        return UpdateEvery()


@lru_cache(maxsize=256)
def planned(plan: LifecyclePlan, num_tasks: int, updates: bool = True) -> tuple[PlannedEpisode, ...]:
    """The plan's order for N tasks, checked; without `updates`, as `ContextMechanism.updates` says, without its update episodes.

    Raises `ConfigError` unless it solves tasks 0 to N-1 in this order, names no episode twice, updates a context after its own
    task and before the next one, proposes a task directly before it is solved, and ends with a solve episode.
    """
    order = tuple(PlannedEpisode(EpisodeKind(kind), position) for kind, position in plan.order(num_tasks))
    name = f"{type(plan).__name__} for {num_tasks} tasks"

    def refuse(what: str, remedy: str) -> ConfigError:
        shown = ", ".join(f"{kind} {position}" for kind, position in order)
        return ConfigError("data.plan", f"{name} ({shown})", what, remedy)

    solves = [position for kind, position in order if kind is EpisodeKind.SOLVE]
    if solves != list(range(num_tasks)):
        raise refuse(f"one solve episode for each of tasks 0 to {num_tasks - 1}, in this order", "Correct `order`.")
    if len(set(order)) < len(order):
        raise refuse("no episode twice, since a baseline belongs to one kind and position", "Correct `order`.")
    latest = -1
    for index, (kind, position) in enumerate(order):
        if kind is EpisodeKind.SOLVE:
            latest = position
        elif kind is EpisodeKind.UPDATE and position != latest:
            raise refuse(f"update {position} between solve {position} and the next solve", "Correct `order`.")
        elif kind is EpisodeKind.PROPOSE and order[index + 1 : index + 2] != ((EpisodeKind.SOLVE, position),):
            raise refuse(f"solve {position} directly after propose {position}", "Correct `order`.")
    if order and order[-1].kind is not EpisodeKind.SOLVE:
        raise refuse(
            "a solve episode at the end, since no task is left to use what is written", "Leave the last one out."
        )
    return order if updates else tuple(one for one in order if one.kind is not EpisodeKind.UPDATE)


def proposes(plan: LifecyclePlan, num_tasks: int) -> bool:
    """Whether the plan's order for N tasks has proposals. Raises what `planned` raises."""
    return any(one.kind is EpisodeKind.PROPOSE for one in planned(plan, num_tasks))
