"""Figures that compare: what the trained policy has over each control, position by position and in the mean.

Every comparison is a difference within packs, taken before the mean over packs, on the packs that both sides played.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from cod_lightning.evaluation.intervals import DIFFERENCE, SHARE, Limits, bootstrap, ratio_estimate
from cod_lightning.evaluation.outcomes import Outcomes, pass_at
from cod_lightning.evaluation.schema import Figure, Figures
from cod_lightning.evaluation.suite import ConditionKind

Asked = int
"""A figure that was asked for, until `Bundle.answered` puts it in its place."""
Asking = Callable[[Float[np.ndarray, " M"]], Asked]
"""Asks for the figure sum_m c_m * (mean over packs of column m), by the contrast c."""


class Bundle:
    """Collects figures over the same packs, then estimates them together, from the same resamples.

    Args:
        packs: Outcomes with the packs, [P], that are the rows of what is added, and with their rules.
    """

    def __init__(self, packs: Outcomes) -> None:
        self._row = {pack_id: row for row, pack_id in enumerate(packs.pack_ids)}
        self._rules = packs.rules
        self._limits: list[Limits] = []
        self._values: list[Float[np.ndarray, "P M"]] = []
        self._contrasts: list[tuple[int, Float[np.ndarray, " M"]]] = []

    def of(self, values: Float[np.ndarray, "P M"], limits: Limits = None) -> Asking:
        """What asks for figures of these values by pack, with what values there can be. NaN is missing."""
        first = len(self._limits)
        self._values.append(values)
        self._limits += [limits] * values.shape[1]

        def ask(contrast: Float[np.ndarray, " M"]) -> Asked:
            self._contrasts.append((first, contrast))
            return len(self._contrasts) - 1

        return ask

    def aligned(self, outcomes: Outcomes, values: Float[np.ndarray, "Q N"]) -> Float[np.ndarray, "P N"]:
        """Values by another list of packs, in the rows of ours; NaN where a pack is not among theirs."""
        found = np.full((len(self._row), values.shape[1]), np.nan)
        for pack_id, row in zip(outcomes.pack_ids, values, strict=True):
            if pack_id in self._row:
                found[self._row[pack_id]] = row
        return found

    def answered(self, asked: Any, seed: int) -> Any:
        """The same mappings and lists, with each figure in place of what asked for it."""
        contrasts = np.zeros((len(self._contrasts), len(self._limits)))
        for statistic, (first, contrast) in enumerate(self._contrasts):
            contrasts[statistic, first : first + len(contrast)] = contrast
        values = np.concatenate(self._values, axis=1)
        found = [
            one.figure() for one in bootstrap(values, contrasts, rules=self._rules, limits=self._limits, seed=seed)
        ]

        def place(one: Any) -> Any:
            if isinstance(one, dict):
                return {key: place(inner) for key, inner in one.items()}
            return list(map(place, one)) if isinstance(one, list) else found[one]

        return place(asked)


GAIN_SOURCE = "Asawa et al., Continual Learning Bench (arXiv 2606.05661)"


def figures(
    trained: Outcomes,
    controls: Mapping[str, Outcomes],
    changes: tuple[int, ...] | None = None,
    seed: int = 0,
    r_max: float | None = None,
    best_warm_start: tuple[str, float] | None = None,
) -> Figures:
    """All figures of a suite; `changes` are the positions [P] of the trained policy's packs at which their rule changes, `r_max` is
    the largest reward of a task: None where it has parts, which the oracle's has not, so that there is no regret;
    `best_warm_start` is the control that is the warm start at its best temperature, and that temperature."""
    bundle, num = Bundle(trained), trained.num_positions
    mean, each = np.full(num, 1 / num), list(np.eye(num))
    later = np.where(np.arange(num) > 0, 1 / max(1, num - 1), 0.0)
    sides = {ConditionKind.TRAINED.value: trained, **controls}
    success = {name: bundle.aligned(one, one.success) for name, one in sides.items()}
    rewards = {name: bundle.aligned(one, one.rewards) for name, one in sides.items()}
    over = {name: bundle.of(trained.success - success[name], DIFFERENCE) for name in controls}
    over_in_reward = {name: bundle.of(trained.rewards - rewards[name]) for name in controls}
    asked: dict[str, Any] = {
        "area": {
            name: {"success": bundle.of(success[name], SHARE)(mean), "reward": bundle.of(rewards[name])(mean)}
            for name in sides
        },
        "whole_packs": {name: bundle.of(success[name].min(axis=1, keepdims=True), SHARE)(np.ones(1)) for name in sides},
        "differences": {
            name: {
                "success": over[name](mean),
                "reward": over_in_reward[name](mean),
                "gain": over[name](each[-1] - each[0]),
                "by_position": list(map(over[name], each)),
            }
            for name in controls
        },
    }
    without = next((str(c) for c in (ConditionKind.NO_CONTEXT, ConditionKind.BLANKED_CONTEXT) if c in controls), None)
    if without:
        of_reward = over_in_reward[without]
        asked["forward_transfer"] = {"success": over[without](later), "reward": of_reward(later)}
        asked["stateful_gain"] = {"gain_t": list(map(of_reward, each)), "gain": of_reward(mean)}
    if ConditionKind.ORACLE in controls and r_max is not None:
        regret = bundle.of(rewards[ConditionKind.ORACLE] - trained.rewards)
        asked["regret"] = {"mean": regret(mean), "by_position": list(map(regret, each))}
    offsets = [] if changes is None else list(range(-1, num - min(changes)))
    if changes is not None:
        asked["recovery"] = _recovery(bundle, success, changes, offsets)
    best, temperature = best_warm_start or ("", 0.0)
    kinds = ConditionKind.BLANKED_CONTEXT, ConditionKind.WARM_START_BLANKED
    if best and controls.keys() >= set(kinds) and num > 1:
        own, its = (success[a] - success[b] for a, b in zip((ConditionKind.TRAINED, best), kinds, strict=True))
        parts = {"trained": (own, DIFFERENCE), "warm_start": (its, DIFFERENCE), "difference": (own - its, (-2.0, 2.0))}
        asked["training_adds"] = {name: bundle.of(*values)(later) for name, values in parts.items()}
    if trained.attempts is not None:
        most = trained.attempts.shape[-1]
        numbers = sorted({2**i for i in range(most.bit_length()) if 2**i <= most} | {most})
        asked["pass_at"] = {str(k): bundle.of(pass_at(trained.attempts, k), SHARE)(mean) for k in numbers}

    found = dict.fromkeys(("forward_transfer", "regret", "recovery", "training_adds", "stateful_gain"))
    found |= bundle.answered(asked, seed)
    if found["forward_transfer"] and without:
        found["forward_transfer"]["control"] = without
        norm = None if r_max is None else normalised_gain(trained, controls[without], r_max, seed)
        found["stateful_gain"] |= {"source": GAIN_SOURCE, "control": without, "gain_norm": norm, "r_max": r_max}
    if found["recovery"]:
        found["recovery"]["offsets"] = offsets
    if found["training_adds"]:
        found["training_adds"]["temperature"] = temperature
    return found  # pyright: ignore[reportReturnType]


def _recovery(
    bundle: Bundle, success: Mapping[str, Float[np.ndarray, "P N"]], changes: Sequence[int], offsets: Sequence[int]
) -> dict[str, Any]:
    """Success at offsets from the change, of the trained policy and of every control on the same packs."""
    trained, one = success[ConditionKind.TRAINED], np.ones(1)
    own = align(trained, changes, offsets)
    last = np.where(np.array(changes) < trained.shape[1] - 1, trained[:, -1], np.nan)
    rows = {name: bundle.of(align(values, changes, offsets), SHARE) for name, values in success.items()}
    return {
        "rows": {name: list(map(ask, np.eye(len(offsets)))) for name, ask in rows.items()},
        "drop": bundle.of((own[:, 1] - own[:, 0])[:, None], DIFFERENCE)(one),
        "regained": bundle.of((last - own[:, 1])[:, None], DIFFERENCE)(one),
    }


def normalised_gain(stateful: Outcomes, stateless: Outcomes, r_max: float, seed: int = 0) -> Figure | None:
    """(stateful - stateless) / (r_max - stateless), of rewards averaged over positions and packs; None without room above.

    Only tasks that both played count. Source: `GAIN_SOURCE`.
    """
    bundle, num_positions = Bundle(stateful), stateful.num_positions
    below = r_max - bundle.aligned(stateless, stateless.rewards)
    gain = stateful.rewards - (r_max - below)
    room = np.where(np.isnan(gain), np.nan, below)
    mean, none = np.full(num_positions, 1 / num_positions), np.zeros(num_positions)
    values = np.concatenate([gain, room], axis=1)
    found = ratio_estimate(
        values, np.concatenate([mean, none]), np.concatenate([none, mean]), rules=stateful.rules, seed=seed
    )
    return None if found.known is None else found.figure()


def align(values: Float[np.ndarray, "P N"], changes: Sequence[int], offsets: Sequence[int]) -> Float[np.ndarray, "P D"]:
    """Values at `change + offset` of each pack; NaN outside the pack.

    >>> align(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), [1, 2], [-1, 0, 1]).tolist()
    [[1.0, 2.0, 3.0], [5.0, 6.0, nan]]
    """
    positions = np.array(changes)[:, None] + np.array(offsets)[None, :]
    inside = (positions >= 0) & (positions < values.shape[1])
    taken = np.take_along_axis(values, np.clip(positions, 0, values.shape[1] - 1), axis=1)
    return np.where(inside, taken, np.nan)
