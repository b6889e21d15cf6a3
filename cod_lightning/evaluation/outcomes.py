"""What came of deploying a policy: rewards and successes by pack and position, with what is missing kept missing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from cod_lightning.errors import DataError
from cod_lightning.types import EpisodeStatus, Lifecycle


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcomes:
    """P lifecycles through packs of N tasks, one lifecycle for each pack, in any order."""

    rewards: Float[np.ndarray, "P N"]
    """Reward of each solve episode; NaN where missing, since a failed engine or world is no reward of 0."""
    success: Float[np.ndarray, "P N"]
    """1 where the task was solved, 0 where not, NaN where missing."""
    pack_ids: tuple[str, ...]
    """[P], all different: what policies are paired by."""
    rules: tuple[str, ...] = ()
    """[P], what each pack hides, equal where packs hide the same: what the intervals resample. Empty: no two hide the same."""
    malformed: Float[np.ndarray, "P N"] | None = None
    """1 where the answer did not parse, 0 where it did, NaN where missing; None where it was not recorded."""
    attempts: Float[np.ndarray, "P N M"] | None = None
    """Success of all attempts at each task from one context, the solve episode first; NaN where missing; None: of one each."""

    def __post_init__(self) -> None:
        shapes = {self.rewards.shape, self.success.shape}
        assert len(shapes) == 1, f"rewards and success differ in shape: {shapes}"
        assert len(self.pack_ids) == len(self.rewards), f"{len(self.pack_ids)} packs, {len(self.rewards)} rows"
        assert len(set(self.pack_ids)) == len(self.pack_ids), "a pack occurs twice; one lifecycle for each"
        assert len(self.rules) in (0, len(self.pack_ids)), f"{len(self.rules)} rules of {len(self.pack_ids)} packs"

    @classmethod
    def of(cls, lifecycles: Sequence[Lifecycle], rules: Sequence[str] = ()) -> "Outcomes":
        """Of lifecycles of as many tasks each, else raises `DataError`; `rules` say what each one's pack hides."""
        assert lifecycles, "no lifecycles, no outcomes"
        if len(lengths := {len(lifecycle.solves) for lifecycle in lifecycles}) > 1:
            found = f"lifecycles of {min(lengths)} to {max(lengths)} tasks cannot be evaluated by position"
            raise DataError(f"{found}. Give the program a `held_out` that plays as many tasks whatever comes of them.")
        rewards = np.array([[solve.reward for solve in life.solves] for life in lifecycles], dtype=float)
        success = np.array([[solve.success for solve in life.solves] for life in lifecycles], dtype=float)
        wrong = [[solve.status is EpisodeStatus.MALFORMED for solve in life.solves] for life in lifecycles]
        malformed = np.where(np.isnan(rewards), np.nan, np.array(wrong, dtype=float))
        pack_ids = tuple(lifecycle.pack_id for lifecycle in lifecycles)
        attempts = _attempts(lifecycles)
        own = {"rewards": rewards, "success": success, "malformed": malformed}
        return cls(**own, pack_ids=pack_ids, rules=tuple(rules), attempts=attempts)

    @property
    def num_packs(self) -> int:
        """P."""
        return self.rewards.shape[0]

    @property
    def num_positions(self) -> int:
        """N."""
        return self.rewards.shape[1]

    @property
    def num_rules(self) -> int:
        """How many different things the packs hide."""
        return len(set(self.rules or self.pack_ids))

    @property
    def mean_success(self) -> float:
        """Over positions; one without any value counts 0."""
        return float(np.nan_to_num(position_means(self.success)).mean())

    def rows(self, pack_ids: Sequence[str]) -> "Outcomes":
        """Rewards and successes of these packs, in this order; NaN for one that is not among its own."""
        index = {pack_id: row for row, pack_id in enumerate(self.pack_ids)}
        chosen = [index.get(pack_id, -1) for pack_id in pack_ids]
        missing = np.full((1, self.num_positions), np.nan)
        rewards, success = (np.vstack([of, missing])[chosen] for of in (self.rewards, self.success))
        rules = tuple((*self.rules, "")[row] for row in chosen) if self.rules else ()
        return Outcomes(rewards=rewards, success=success, pack_ids=tuple(pack_ids), rules=rules)


def _attempts(lifecycles: Sequence[Lifecycle]) -> Float[np.ndarray, "P N M"] | None:
    found = [[[one.success] for one in life.solves] for life in lifecycles]
    for of_life, life in zip(found, lifecycles, strict=True):
        for attempt in life.attempts:
            if attempt.trained:
                of_life[attempt.position].append(attempt.success)
    most = max(len(of_task) for of_life in found for of_task in of_life)
    padded = [[[*of_task, *[None] * (most - len(of_task))] for of_task in of_life] for of_life in found]
    return None if most == 1 else np.array(padded, dtype=float)


def pass_at(attempts: Float[np.ndarray, "P N M"], k: int) -> Float[np.ndarray, "P N"]:
    """pass@k of each task: the chance that one of k attempts, drawn without replacement from its m known ones, solves it.

    1 - C(m - c, k) / C(m, k), with c of m solved; without bias. NaN where fewer than k are known. Source: Chen et al., "Evaluating
    Large Language Models Trained on Code" (arXiv 2107.03374), equation 1.

    >>> pass_at(np.array([[[1.0, 0.0, 0.0, np.nan]]]), 2).round(3).tolist()
    [[0.667]]
    """
    known = (~np.isnan(attempts)).sum(axis=-1)
    solved = np.nansum(attempts, axis=-1)
    none = np.ones_like(solved)
    for i in range(k):
        none *= np.clip(known - solved - i, 0, None) / np.maximum(known - i, 1)
    return np.where(known >= k, 1 - none, np.nan)


def position_means(values: Float[np.ndarray, "P N"]) -> Float[np.ndarray, " N"]:
    """Mean over packs by position; NaN entries are left out, a position without any other is NaN.

    >>> position_means(np.array([[1.0, np.nan], [0.0, np.nan]])).tolist()
    [0.5, nan]
    """
    present = ~np.isnan(values)
    counts = present.sum(axis=0)
    sums = np.where(present, values, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
