"""`evaluation.json`: the one file that says how well a run's policy connects the dots. Its keys are a fixed interface.

Missing numbers are null, never NaN and never 0. `success` is a share of lifecycles, `_ci95` a 95 % interval over packs.
"""

from typing import TypedDict

Interval = list[float] | None


class PositionRecord(TypedDict):
    """One position of one condition."""

    reward: float | None
    reward_ci95: Interval
    success: float | None
    success_ci95: Interval
    n: int
    """Lifecycles with a reward at this position."""


class WarmStartDifference(TypedDict):
    """Trained minus warm start, in success, over the packs that both played."""

    best_temperature: float
    """The one at which the warm start's success, averaged over positions, is highest on these very packs."""
    mean_difference: float | None
    """In the mean over positions."""
    ci95: Interval
    gain_difference: float | None
    """In the gain from the first to the last position."""
    gain_ci95: Interval


class Paired(TypedDict):
    """Comparisons within packs."""

    trained_minus_best_warm_start: WarmStartDifference | None
    gain_ci95: Interval
    """Of `cod_gain`."""
    blanked_max_deviation: float | None
    """Largest distance, over positions, of success with the context blanked from the success at position 0 without."""


class SuiteRecord(TypedDict):
    """One suite."""

    env: str
    packs: int
    pack_size: int
    temperature: float
    positions: list[PositionRecord]
    """Of the trained policy at the suite's temperature."""
    controls: dict[str, list[PositionRecord]]
    """`blanked_context`; `warm_start` (at the suite's temperature), `warm_start_t0.3`, ...; `scripted`."""
    cod_gain: float | None
    """Success at the last minus the first position."""
    paired: Paired


class Results(TypedDict):
    """The whole file."""

    suites: dict[str, SuiteRecord]
