"""Judges whose errors are known: how good does a judge have to be before a policy learns from it?

Source: the verifier as a noisy channel with rates of false positives and false negatives (arXiv 2510.00915). What differs: the same
material gets the same verdict, so that an error is not averaged out by asking again; nothing corrects for the errors; siblings may
be compared in place of being judged.
"""

from typing import Any

import msgspec

from cod_lightning.ranges import Share
from cod_lightning.rewards.base import Reward
from cod_lightning.rewards.judge import Agreement, material_of
from cod_lightning.rewards.pairwise import Pairwise
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Episode, Task

_SEED = 0
"""Of the errors."""


class NoisyJudge(Reward):
    """1 for a task that was solved and 0 for another, wrong with known probabilities; a stand-in for a judge that costs nothing.

    It decides by what a `JudgeReward` would see, so the same notes, turns and feedback get the same verdict. With both
    probabilities p its mean is p + (1 - 2p) times the success: the advantages that it gives are right on average, smaller and
    noisier. To train by it alone give the part `world` the weight 0; `success` stays the environment's.

    Args:
        false_positive: Probability of a 1 where the task was not solved, in [0, 1].
        false_negative: Probability of a 0 where it was, in [0, 1].
        weight: Factor of the score.
    """

    def __init__(self, false_positive: Share = 0.1, false_negative: Share = 0.1, weight: float = 1.0) -> None:
        self.false_positive, self.false_negative, self.weight = false_positive, false_negative, weight
        self.agreement = Agreement()

    async def __call__(self, episode: Episode, task: Task) -> float:
        solved = bool(episode.success)
        seen: dict[str, Any] = material_of(episode)
        drawn = derive_seed("noisy judge", _SEED, task.seed, msgspec.json.encode(seen).decode()) / 2**63
        wrong = drawn < (self.false_negative if solved else self.false_positive)
        score = float(solved != wrong)
        self.agreement.count(score, episode)
        return score

    def report(self) -> str:
        return f"noisy judge: {self.agreement}" if self.agreement.num else ""


class NoisyPairwiseJudge(Pairwise):
    """Prefers the solved one of two siblings' episodes, wrong with a known probability; a stand-in for a `PairwiseJudge`.

    It decides by what a `PairwiseJudge` would see in that order, so the same question gets the same verdict. An error turns a
    verdict round, and a tie into a preference for either. With the probability p the mean verdict is p + (1 - 2p) times the
    right one. To train by it alone give the part `world` the weight 0; `success` stays the environment's.

    Args:
        error: Probability of an error in one verdict; at 0.5 a verdict says nothing.
        opponents: Siblings that an episode is compared with, an even number; null: all of them.
        weight: Factor of the score.
    """

    def __init__(self, error: Share = 0.1, opponents: int | None = None, weight: float = 1.0) -> None:
        super().__init__(opponents, "data.rewards.NoisyPairwiseJudge")
        self.error, self.weight = error, weight

    async def preferred(self, first: Episode, second: Episode, task: Task) -> float:
        seen = msgspec.json.encode([material_of(first), material_of(second)]).decode()
        drawn = derive_seed("noisy pairwise judge", _SEED, task.seed, seen) / 2**63
        right = (1 + bool(first.success) - bool(second.success)) / 2
        if drawn >= self.error:
            return right
        return 1 - right if right != 0.5 else float(drawn < self.error / 2)

    def report(self) -> str:
        said = super().report()
        return f"noisy pairwise judge: {said}" if said else ""
