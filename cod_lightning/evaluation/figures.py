"""Figures that compare: what the trained policy has over each control, position by position and in the mean.

Every comparison is a difference within packs, taken before the mean over packs, on the packs that both sides played.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from cod_lightning.evaluation.intervals import DIFFERENCE, SHARE, Limits, bootstrap, ratio_estimate
from cod_lightning.evaluation.outcomes import Outcomes, pass_at
from cod_lightning.evaluation.schema import (
    Both,
    Difference,
    Figure,
    Figures,
    ForwardTransfer,
    Recovery,
    Regret,
    StatefulGain,
    TrainingAdds,
)
from cod_lightning.evaluation.suite import ConditionKind


class Bundle:
    """Collects statistics over the same packs, then estimates them together.

    Args:
        packs: Outcomes with the packs, [P], that are the rows of what is added, and with their rules.
    """

    def __init__(self, packs: Outcomes) -> None:
        self._row = {pack_id: row for row, pack_id in enumerate(packs.pack_ids)}
        self._rules = packs.rules
        self._limits: list[Limits] = []
        self._values: list[Float[np.ndarray, "P M"]] = []
        self._contrasts: list[tuple[int, Float[np.ndarray, " M"]]] = []
        self._num_columns = 0

    def columns(self, values: Float[np.ndarray, "P M"], limits: Limits = None) -> int:
        """Add values by pack, with what there can be; the index of their first column. NaN is missing."""
        first = self._num_columns
        self._values.append(values)
        self._limits += [limits] * values.shape[1]
        self._num_columns += values.shape[1]
        return first

    def statistic(self, first: int, contrast: Float[np.ndarray, " M"]) -> int:
        """Ask for the statistic sum_m c_m * (mean over packs of column first + m); its index among the estimates."""
        self._contrasts.append((first, contrast))
        return len(self._contrasts) - 1

    def aligned(self, outcomes: Outcomes, values: Float[np.ndarray, "Q N"]) -> Float[np.ndarray, "P N"]:
        """Values by another list of packs, in the rows of ours; NaN where a pack is not among theirs."""
        found = np.full((len(self._row), values.shape[1]), np.nan)
        for pack_id, row in zip(outcomes.pack_ids, values, strict=True):
            if pack_id in self._row:
                found[self._row[pack_id]] = row
        return found

    def figures(self, seed: int) -> list[Figure]:
        """All of them, from the same resamples."""
        contrasts = np.zeros((len(self._contrasts), self._num_columns))
        for statistic, (first, contrast) in enumerate(self._contrasts):
            contrasts[statistic, first : first + len(contrast)] = contrast
        values = np.concatenate(self._values, axis=1)
        found = bootstrap(values, contrasts, rules=self._rules, limits=self._limits, seed=seed)
        return [one.figure() for one in found]


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
    found = _measured(trained, controls, seed)

    def both(key: str, statistic: str) -> Both:
        return Both(success=found[f"{key} success {statistic}"], reward=found[f"{key} reward {statistic}"])

    def by_position(key: str) -> list[Figure]:
        return [found[f"{key} {n}"] for n in range(trained.num_positions)]

    differences = {
        name: Difference(
            **both(f"minus {name}", "mean"),
            gain=found[f"minus {name} success gain"],
            by_position=by_position(f"minus {name} success"),
        )
        for name in controls
    }
    without = next((str(c) for c in (ConditionKind.NO_CONTEXT, ConditionKind.BLANKED_CONTEXT) if c in controls), None)
    regret = transfer = stateful = None
    if ConditionKind.ORACLE in controls and r_max is not None:
        against = f"minus {ConditionKind.ORACLE} reward"
        regret = Regret(
            mean=_negative(found[f"{against} mean"]), by_position=list(map(_negative, by_position(against)))
        )
    if without:
        transfer = ForwardTransfer(control=without, **both(f"minus {without}", "later"))
        stateful = StatefulGain(
            source=GAIN_SOURCE,
            control=without,
            gain_t=by_position(f"minus {without} reward"),
            gain=found[f"minus {without} reward mean"],
            gain_norm=None if r_max is None else normalised_gain(trained, controls[without], r_max, seed),
            r_max=r_max,
        )
    compared = Figures(
        area={name: both(name, "mean") for name in (ConditionKind.TRAINED.value, *controls)},
        whole_packs={name: found[f"{name} whole"] for name in (ConditionKind.TRAINED.value, *controls)},
        differences=differences,
        forward_transfer=transfer,
        regret=regret,
        recovery=recovery(trained, controls, changes, seed) if changes is not None else None,
        training_adds=None if best_warm_start is None else training_adds(trained, controls, *best_warm_start, seed),
        stateful_gain=stateful,
    )
    if trained.attempts is not None:
        compared["pass_at"] = _pass_at(trained, trained.attempts, seed)
    return compared


def _pass_at(trained: Outcomes, attempts: Float[np.ndarray, "P N M"], seed: int) -> dict[str, Figure]:
    """pass@k for k = 1, 2, 4, ... and M."""
    most, bundle = attempts.shape[-1], Bundle(trained)
    numbers = sorted({2**i for i in range(most.bit_length()) if 2**i <= most} | {most})
    for k in numbers:
        columns = bundle.columns(pass_at(attempts, k), SHARE)
        bundle.statistic(columns, np.full(trained.num_positions, 1 / trained.num_positions))
    return dict(zip(map(str, numbers), bundle.figures(seed), strict=True))


def training_adds(
    trained: Outcomes, controls: Mapping[str, Outcomes], warm_start: str, temperature: float, seed: int = 0
) -> TrainingAdds | None:
    """Transfer of the trained policy, of the warm start at this temperature, and their difference; None without both blanked."""
    kinds = (ConditionKind.BLANKED_CONTEXT, ConditionKind.WARM_START_BLANKED)
    if not controls.keys() >= set(kinds) or trained.num_positions < 2:
        return None
    bundle = Bundle(trained)
    begun, blanked, begun_blanked = (bundle.aligned(controls[k], controls[k].success) for k in (warm_start, *kinds))
    own, its = trained.success - blanked, begun - begun_blanked
    later = np.full(trained.num_positions, 1 / (trained.num_positions - 1))
    later[0] = 0.0
    for values, limits in ((own, DIFFERENCE), (its, DIFFERENCE), (own - its, (-2.0, 2.0))):
        bundle.statistic(bundle.columns(values, limits), later)
    of_trained, of_warm_start, difference = bundle.figures(seed)
    return TrainingAdds(temperature=temperature, trained=of_trained, warm_start=of_warm_start, difference=difference)


def _measured(trained: Outcomes, controls: Mapping[str, Outcomes], seed: int) -> dict[str, Figure]:
    """Of each condition, and of the trained policy minus it (`minus NAME`), by quantity: mean, gain, later, and by position."""
    bundle, num_positions = Bundle(trained), trained.num_positions
    mean, gain = np.full(num_positions, 1 / num_positions), np.zeros(num_positions)
    gain[0], gain[-1] = -1.0, 1.0
    asked: dict[str, int] = {}

    def ask(
        key: str, values: Float[np.ndarray, "P N"], limits: Limits, *, later: bool = False, by_position: bool = False
    ) -> None:
        first = bundle.columns(values, limits)
        asked[f"{key} mean"] = bundle.statistic(first, mean)
        asked[f"{key} gain"] = bundle.statistic(first, gain)
        if later:
            contrast = np.full(num_positions, 1 / max(1, num_positions - 1))
            contrast[0] = 0.0
            asked[f"{key} later"] = bundle.statistic(first, contrast)
        if by_position:
            for n, unit in enumerate(np.eye(num_positions)):
                asked[f"{key} {n}"] = bundle.statistic(first, unit)

    for name, outcomes in {ConditionKind.TRAINED.value: trained, **controls}.items():
        for quantity, values in (("success", "success"), ("reward", "rewards")):
            own, theirs = getattr(trained, values), bundle.aligned(outcomes, getattr(outcomes, values))
            is_share = quantity == "success"
            ask(f"{name} {quantity}", theirs, SHARE if is_share else None)
            if outcomes is not trained:
                limits = DIFFERENCE if is_share else None
                ask(f"minus {name} {quantity}", own - theirs, limits, later=True, by_position=True)
        whole = bundle.aligned(outcomes, outcomes.success.min(axis=1, keepdims=True))
        asked[f"{name} whole"] = bundle.statistic(bundle.columns(whole, SHARE), np.ones(1))
    found = bundle.figures(seed)
    return {key: found[at] for key, at in asked.items()}


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


def _negative(value: Figure) -> Figure:
    mean, ci95 = value["mean"], value["ci95"]
    if mean is None or ci95 is None:
        return value
    return Figure(mean=0.0 - mean, ci95=[0.0 - ci95[1], 0.0 - ci95[0]], n=value["n"])


def recovery(trained: Outcomes, controls: Mapping[str, Outcomes], changes: Sequence[int], seed: int = 0) -> Recovery:
    """Success at offsets from the change, of the trained policy and of every control on the same packs."""
    size = trained.num_positions
    offsets = list(range(-1, size - min(changes)))
    bundle = Bundle(trained)
    rows: dict[str, int] = {}
    for name, outcomes in {ConditionKind.TRAINED.value: trained, **controls}.items():
        success = bundle.aligned(outcomes, outcomes.success)
        rows[name] = bundle.columns(align(success, changes, offsets), SHARE)
        for unit in np.eye(len(offsets)):
            bundle.statistic(rows[name], unit)
    own = align(trained.success, changes, offsets)
    last = np.where(np.array(changes) < size - 1, trained.success[:, -1], np.nan)
    drop = bundle.statistic(bundle.columns((own[:, 1] - own[:, 0])[:, None], DIFFERENCE), np.ones(1))
    regained = bundle.statistic(bundle.columns((last - own[:, 1])[:, None], DIFFERENCE), np.ones(1))
    found = bundle.figures(seed)
    return Recovery(
        offsets=offsets,
        rows={name: found[first : first + len(offsets)] for name, first in rows.items()},
        drop=found[drop],
        regained=found[regained],
    )


def align(values: Float[np.ndarray, "P N"], changes: Sequence[int], offsets: Sequence[int]) -> Float[np.ndarray, "P D"]:
    """Values at `change + offset` of each pack; NaN outside the pack.

    >>> align(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), [1, 2], [-1, 0, 1]).tolist()
    [[1.0, 2.0, 3.0], [5.0, 6.0, nan]]
    """
    positions = np.array(changes)[:, None] + np.array(offsets)[None, :]
    inside = (positions >= 0) & (positions < values.shape[1])
    taken = np.take_along_axis(values, np.clip(positions, 0, values.shape[1] - 1), axis=1)
    return np.where(inside, taken, np.nan)
