"""Lifecycles made by hand, for tests that need some but play none."""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from cod_lightning.contexts.base import TextState
from cod_lightning.engines.base import digest
from cod_lightning.types import (
    Episode,
    EpisodeKind,
    EpisodeStatus,
    Group,
    Lifecycle,
    Pack,
    Split,
    StopReason,
    Task,
    Turn,
)


def turn(response: str = "go left", logprobs: Sequence[float] = (-0.1, -2.5), **more: Any) -> Turn:
    """A turn with a token for each log-prob; `more` are other fields."""
    own = {"new_ids": (5, 6, 7), "extends": False, "action_ids": tuple(range(len(logprobs)))}
    own |= {"behaviour_logprobs": tuple(logprobs), "stop": StopReason.STOP, "policy_version": 3}
    own |= {"prompt_digest": digest((5, 6, 7)), "observation": "a wall", "response": response}
    return Turn(**own | more)


def episode(**more: Any) -> Episode:
    """The first task, solved with reward 1; `more` are other fields."""
    own = {"kind": EpisodeKind.SOLVE, "position": 0, "status": EpisodeStatus.COMPLETED, "reward": 1.0}
    return Episode(**own | more)


def solve(position: int, success: bool | None, context: str = "", turns: Sequence[Turn] = (), **more: Any) -> Episode:
    """Reward 1 for success, 0 for none; None is a world that failed. `more` are other fields."""
    carried = {"context_before": context, "context_after": context}
    carried |= {"state_before": TextState(context), "state_after": TextState(context)}
    status = EpisodeStatus.FAILED if success is None else EpisodeStatus.COMPLETED
    reward = None if success is None else float(success)
    return episode(
        position=position, status=status, reward=reward, success=success, turns=tuple(turns), **carried, **more
    )


def attempt(position: int, success: bool | None, *, trained: bool = True, turns: Sequence[Turn] = ()) -> Episode:
    """Beside that solve episode of a `lifecycle`."""
    return solve(position, success, turns=turns, parent=2 * position, trained=trained)


def update(position: int, parsed: bool = True, context: str = "", turns: Sequence[Turn] = ()) -> Episode:
    carried = {"context_after": context, "state_before": TextState(), "state_after": TextState(context)}
    status, reward = (EpisodeStatus.COMPLETED, 0.0) if parsed else (EpisodeStatus.MALFORMED, -0.1)
    made = {"kind": EpisodeKind.UPDATE, "position": position, "status": status, "reward": reward, "success": parsed}
    return episode(turns=tuple(turns), **made, **carried)


def lifecycle(pack_id: str, successes: Sequence[bool | None], *, sibling: int = 0, context: str = "") -> Lifecycle:
    """Solve episodes with these outcomes (a context from the second on), update episodes that parse."""
    episodes: list[Episode] = []
    for position, success in enumerate(successes):
        episodes.append(solve(position, success, context if position else "", (turn(),)))
        episodes.append(update(position, context=context, turns=(turn(),)))
    return Lifecycle(pack_id=pack_id, sibling=sibling, episodes=tuple(episodes[:-1]))


def with_attempts(life: Lifecycle, *beside: Episode) -> Lifecycle:
    """The lifecycle with these attempts."""
    return structs.replace(life, episodes=life.episodes + beside)


def pack(pack_id: str, num_tasks: int, split: Split = Split.VALIDATION) -> Pack:
    tasks = tuple(Task(id=f"{pack_id}.{n}", seed=n, spec={"size": 3, "holes": [n]}) for n in range(num_tasks))
    return Pack(id=pack_id, split=split, world_seed=7, tasks=tasks)


def group(pack_id: str, siblings: Sequence[Sequence[bool | None]], *, context: str = "") -> Group:
    """One lifecycle for each row of outcomes."""
    lifecycles = [lifecycle(pack_id, row, sibling=k, context=context) for k, row in enumerate(siblings)]
    return Group(pack=pack(pack_id, len(siblings[0])), lifecycles=tuple(lifecycles))
