"""What pays a proposal: what came of its task, known once the solve episodes of it have ended."""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import takewhile

from msgspec import structs

from cod_lightning.errors import EngineRefused, RewardFailure
from cod_lightning.rewards.base import RewardPart, Rewards, bounded, number, summed
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Task


class ProposalReward(RewardPart):
    """A part of a proposal's reward. Those in `data.rewards` take the place of the one by which the program asks (`Agent.ask`).

    A proposal that is no task has 0.
    """

    kinds = frozenset({EpisodeKind.PROPOSE})

    @abstractmethod
    async def __call__(self, solves: Sequence[Episode], task: Task) -> float:
        """The score of a proposed task, given all its solve episodes, each with a reward."""


async def paid(
    episodes: Sequence[Episode],
    tasks: Sequence[Task],
    rewards: Rewards,
    worth: ProposalReward,
    limit_s: float | None = None,
) -> list[Episode]:
    """A lifecycle's episodes, each proposal with its reward; missing, by the same fault, where one of its solves is.

    `worth` pays where no part does, under the name of its class in small letters.
    """
    parts = {name: part for name, part in rewards.items() if isinstance(part, ProposalReward)}
    parts = parts or {type(worth).__name__.lower(): worth}
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


async def _weighted(part: ProposalReward, solves: Sequence[Episode], task: Task) -> float:
    return part.weight * number(await part(solves, task))
