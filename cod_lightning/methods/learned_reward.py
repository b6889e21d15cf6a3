"""A reward that is known for some tasks only, and a small model of trajectories that stands in for it in the others."""

import math
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
from jaxtyping import Float

from cod_lightning.errors import ConfigError, DataError
from cod_lightning.ranges import InnerShare
from cod_lightning.rewards.base import Reward
from cod_lightning.rewards.judge import Agreement
from cod_lightning.rollout import transcript
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Episode, EpisodeStatus, Task

_NUM_FEATURES = 2**14
_MOST_WORDS = 64
"""Of the task, and of what came after it."""
_STEPS = 300


class PartlyKnown(Reward):
    """The environment's reward in some tasks; in the others what a model learned from the outcomes of such tasks, or nothing.

    For training where few tasks have a checker; give the part `world` the weight 0 beside it. `success` stays the environment's.
    The model is a logistic regression on pairs of a word of the task with a word of what came after it, fitted before training to
    the known tasks of an earlier run's transcripts. Its score is the probability of success.

    Source: ARMAP (arXiv 2502.12130), a reward model on trajectories. What differs: there it is a vision-language model trained on
    pairs that language models make up, and guides search; here outcomes of known tasks train it, and it trains the policy.

    Args:
        share: Of tasks whose reward is known, drawn by their seeds, in (0, 1).
        transcripts: `lifecycles/train.jsonl` of a run, from whose known tasks the model learns; null: the others have the score 0.
        weight: Factor of the score.
    """

    def __init__(self, share: InnerShare = 0.5, transcripts: str | None = None, weight: float = 1.0) -> None:
        self.share, self.transcripts, self.weight = share, transcripts, weight
        self.agreement = Agreement()
        self._weights: Float[np.ndarray, " F"] | None = None

    def is_known(self, task: Task) -> bool:
        """Whether this task's reward is."""
        return derive_seed("known reward", 0, task.seed) / 2**63 < self.share

    def check(self) -> None:
        """Fit the model."""
        if self.transcripts is None or self._weights is not None:
            return
        key = "data.rewards.PartlyKnown.transcripts"
        try:
            groups = transcript.read(Path(self.transcripts))
            solves = [(one, g.pack.tasks[one.position]) for g in groups for life in g.lifecycles for one in life.solves]
        except (DataError, IndexError) as error:
            expected = f"lifecycles/train.jsonl of a run ({error})"
            raise ConfigError(key, self.transcripts, expected, "Null learns nothing.") from None
        known = [one for one, task in solves if one.success is not None and self.is_known(task)]
        if len({one.success for one in known}) < 2:
            expected = f"transcripts in which known tasks were solved and failed, not {len(known)} with one outcome"
            raise ConfigError(key, self.transcripts, expected, "Name another run.")
        self._weights = fitted([features(one) for one in known], np.array([float(bool(one.success)) for one in known]))

    async def __call__(self, episode: Episode, task: Task) -> float:
        if self.is_known(task):
            assert episode.reward is not None
            return episode.reward
        if self.transcripts is None or episode.status is EpisodeStatus.MALFORMED:
            return 0.0
        self.check()
        assert self._weights is not None
        score = probability(self._weights, features(episode))
        self.agreement.count(score, episode)
        return score

    def report(self) -> str:
        return f"learned reward: {self.agreement} whose reward it did not know" if self.agreement.num else ""


def features(episode: Episode) -> list[int]:
    """Hashed pairs of a word that the task began with and a word of the responses, later observations and the feedback."""
    first, *later = [turn.observation for turn in episode.turns] or [""]
    said = [*later, *(turn.response for turn in episode.turns), episode.feedback]
    asked = list(dict.fromkeys(first.split()))[-_MOST_WORDS:]
    seen = list(dict.fromkeys(" ".join(said).split()))[-_MOST_WORDS:]
    return sorted({crc32(f"{a}\n{b}".encode(errors="replace")) % _NUM_FEATURES for a in asked for b in ("", *seen)})


def probability(weights: Float[np.ndarray, " F"], found: Sequence[int]) -> float:
    """Of success: the logistic function of the mean-square-normed sum of the features' weights.

    >>> probability(np.zeros(4), [1, 3])
    0.5
    """
    return 1 / (1 + math.exp(-float(np.clip(weights[list(found)].sum() / math.sqrt(max(1, len(found))), -30, 30))))


def fitted(rows: Sequence[Sequence[int]], outcomes: Float[np.ndarray, " R"]) -> Float[np.ndarray, " F"]:
    """Weights of the largest likelihood, nearly: so many steps of AdaGrad from 0 over all rows at once."""
    lengths = np.array([len(row) for row in rows])
    of_row = np.repeat(np.arange(len(rows)), lengths)
    columns = np.concatenate([np.asarray(row, dtype=int) for row in rows])
    value = 1 / np.sqrt(np.maximum(1, lengths))[of_row]
    weights, squares = np.zeros(_NUM_FEATURES), np.full(_NUM_FEATURES, 1e-8)
    for _ in range(_STEPS):
        sums = np.bincount(of_row, weights[columns] * value, len(rows))
        wrong = 1 / (1 + np.exp(-np.clip(sums, -30, 30))) - outcomes
        gradient = np.bincount(columns, wrong[of_row] * value, _NUM_FEATURES) / len(rows)
        squares += gradient**2
        weights -= 0.5 * gradient / np.sqrt(squares)
    return weights
