"""What pays a proposal: how much can be learnt from its task, known once the solve episodes of it have ended."""

from collections.abc import Sequence
from itertools import takewhile

from msgspec import structs

from cod_lightning.errors import EngineRefused, RewardFailure
from cod_lightning.rewards.base import RewardPart, Rewards, bounded, number, summed
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Task


class Learnability(RewardPart):
    """4 p (1 - p), with p the share of the proposed task's solve episodes that succeeded: 1 for even chances, 0 for a sure outcome.

    The part `learnability` of a proposal, unless `data.rewards` names parts of this class or a subclass, which then take its place.
    A proposal that is no task has 0. In expectation over M independent solve episodes, each solved with probability q, it is
    (1 - 1/M) 4 q (1 - q).

    Source: the variance of success by which SFL (arXiv 2408.15099) chooses levels, times 4. Absolute Zero (arXiv 2505.03335) has
    1 - p, and 0 for p = 0, so that the hardest task that is ever solved pays most; R-Zero (arXiv 2508.05004) has 1 - 2 |p - 1/2|,
    with the same maximum, and a penalty for tasks like others, which is left out: what the context says already pays nothing.

    Args:
        weight: Factor of this part.
    """

    kinds = frozenset({EpisodeKind.PROPOSE})

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    async def __call__(self, solves: Sequence[Episode], task: Task) -> float:
        """The score of a proposed task, given all its solve episodes, each with a reward."""
        p = sum(bool(one.success) for one in solves) / len(solves)
        return 4 * p * (1 - p)


async def paid(
    episodes: Sequence[Episode], tasks: Sequence[Task], rewards: Rewards, limit_s: float | None = None
) -> list[Episode]:
    """A lifecycle's episodes, each proposal with its `Learnability`; missing, by the same fault, where one of its solves is."""
    parts = {name: part for name, part in rewards.items() if isinstance(part, Learnability)}
    parts = parts or {"learnability": Learnability()}
    out = list(episodes)
    for index, one in enumerate(episodes):
        if one.kind is not EpisodeKind.PROPOSE or one.reward is None:
            continue
        solves = list(takewhile(lambda other: other.kind is EpisodeKind.SOLVE, episodes[index + 1 :]))
        if lost := next((solve for solve in solves if solve.reward is None), None):
            status = EpisodeStatus.FAILED
            out[index] = structs.replace(one, status=status, reward=None, success=None, error=lost.error)
            continue
        scores: dict[str, float] = dict.fromkeys(parts, 0.0)
        failures: list[RewardFailure] = []
        for name, part in parts.items() if one.success else ():
            found = await bounded(name, limit_s, _weighted(part, solves, tasks[one.position]))
            if isinstance(found, EngineRefused):
                raise found
            if isinstance(found, RewardFailure):
                failures.append(found)
            else:
                scores[name] = found
        out[index] = summed(one, {**one.parts, **scores}, failures)
    return out


async def _weighted(part: Learnability, solves: Sequence[Episode], task: Task) -> float:
    return part.weight * number(await part(solves, task))
