"""Figures that compare: what the trained policy has over each control, position by position and in the mean.

Every comparison is a difference within packs, taken before the mean over packs, on the packs that both sides played.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from cod_lightning.evaluation.bundle import Bundle, figure
from cod_lightning.evaluation.controls import Control
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.recovery import recovery
from cod_lightning.evaluation.schema import Both, Difference, Figure, Figures, ForwardTransfer, Regret


def figures(
    trained: Outcomes, controls: Mapping[str, Outcomes], changes: tuple[int, ...] | None = None, seed: int = 0
) -> Figures:
    """All figures of a suite; `changes` are the positions [P] of the trained policy's packs at which their rule changes."""
    bundle, num_positions = Bundle(trained.pack_ids), trained.num_positions
    mean, gain = np.full(num_positions, 1 / num_positions), np.zeros(num_positions)
    gain[0], gain[-1] = -1.0, 1.0
    asked: dict[str, int] = {}

    def ask(key: str, values: Float[np.ndarray, "P N"], *, later: bool = False, by_position: bool = False) -> None:
        first = bundle.columns(values)
        asked[f"{key} mean"] = bundle.statistic(first, mean)
        asked[f"{key} gain"] = bundle.statistic(first, gain)
        if later:
            contrast = np.full(num_positions, 1 / max(1, num_positions - 1))
            contrast[0] = 0.0
            asked[f"{key} later"] = bundle.statistic(first, contrast)
        if by_position:
            for n, unit in enumerate(np.eye(num_positions)):
                asked[f"{key} {n}"] = bundle.statistic(first, unit)

    for name, outcomes in {"trained": trained, **controls}.items():
        for quantity, own, theirs in _quantities(bundle, trained, outcomes):
            ask(f"{name} {quantity}", theirs)
            if outcomes is not trained:
                ask(f"minus {name} {quantity}", own - theirs, later=True, by_position=True)
    found = bundle.estimates(seed)

    def at(key: str) -> Figure:
        return figure(found[asked[key]])

    def both(key: str, statistic: str) -> Both:
        return Both(success=at(f"{key} success {statistic}"), reward=at(f"{key} reward {statistic}"))

    def by_position(key: str) -> list[Figure]:
        return [at(f"{key} {n}") for n in range(num_positions)]

    differences = {
        name: Difference(
            **both(f"minus {name}", "mean"),
            gain=at(f"minus {name} success gain"),
            by_position=by_position(f"minus {name} success"),
        )
        for name in controls
    }
    without = next((str(c) for c in (Control.NO_CONTEXT, Control.BLANKED_CONTEXT) if c in controls), None)
    against_oracle = f"minus {Control.ORACLE} reward"
    return Figures(
        area={name: both(name, "mean") for name in ("trained", *controls)},
        differences=differences,
        forward_transfer=ForwardTransfer(control=without, **both(f"minus {without}", "later")) if without else None,
        regret=Regret(
            mean=_negative(at(f"{against_oracle} mean")), by_position=list(map(_negative, by_position(against_oracle)))
        )
        if Control.ORACLE in controls
        else None,
        recovery=recovery(trained, controls, changes, seed) if changes is not None else None,
    )


def _quantities(
    bundle: Bundle, trained: Outcomes, outcomes: Outcomes
) -> tuple[tuple[str, Float[np.ndarray, "P N"], Float[np.ndarray, "P N"]], ...]:
    """Success and reward of the trained policy and of these outcomes, in the rows of the trained policy's packs."""
    success, rewards = (bundle.aligned(outcomes, values) for values in (outcomes.success, outcomes.rewards))
    return ("success", trained.success, success), ("reward", trained.rewards, rewards)


def _negative(value: Figure) -> Figure:
    mean, ci95 = value["mean"], value["ci95"]
    if mean is None or ci95 is None:
        return value
    return Figure(mean=0.0 - mean, ci95=[0.0 - ci95[1], 0.0 - ci95[0]], n=value["n"])
