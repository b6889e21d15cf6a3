"""`evaluation.json`: how well a run's policy connects the dots, suite by suite. Its keys are a fixed interface.

Missing numbers are null, never NaN and never 0. `success` is a share of lifecycles, `_ci95` a 95 % interval over hidden rules. Keys
that are not required came later; files of earlier runs do without them.
"""

from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta

Interval = Annotated[list[float], Meta(min_length=2, max_length=2)] | None


class PositionRecord(TypedDict):
    """One position of one condition."""

    reward: float | None
    reward_ci95: Interval
    success: float | None
    success_ci95: Interval
    n: int
    """Lifecycles with a reward at this position."""
    malformed: NotRequired[float | None]
    """Share of them whose answer did not parse; null where it was not recorded."""


class WarmStartDifference(TypedDict):
    """Trained minus warm start, in success, over the packs that both played."""

    best_temperature: float
    """The one at which the warm start's success, averaged over positions, is highest on these very packs."""
    temperatures: NotRequired[list[float]]
    """All at which it was played; missing in records of versions before."""
    mean_difference: float | None
    """In the mean over positions."""
    ci95: Interval


class Paired(TypedDict):
    """Comparisons within packs."""

    trained_minus_best_warm_start: WarmStartDifference | None
    gain_ci95: Interval
    """Of `cod_gain`."""
    blanked_max_deviation: float | None
    """Largest distance, over positions, of success with the context blanked from the success at position 0 without."""


class Figure(TypedDict):
    """A number with its interval."""

    mean: float | None
    ci95: Interval
    n: int
    """Packs behind it."""


class Both(TypedDict):
    """Success and reward apart."""

    success: Figure
    reward: Figure


class Difference(TypedDict):
    """Trained minus a control, paired within the packs that both played."""

    success: Figure
    """In the mean over positions."""
    reward: Figure
    """In the mean over positions."""
    gain: Figure
    """In the gain of success from the first to the last position."""
    by_position: list[Figure]
    """In success."""


class ForwardTransfer(TypedDict):
    """Trained minus the control without context, in the mean over positions 1 and later: what the contexts are worth."""

    control: str
    """`no_context` where it was played, else `blanked_context`."""
    success: Figure
    reward: Figure


class Regret(TypedDict):
    """Reward of the oracle reference minus that of the trained policy, paired within the packs that both played."""

    mean: Figure
    """Over positions."""
    by_position: list[Figure]


class Recovery(TypedDict):
    """Success around the change of the rule, each pack aligned at its own first task under the new one."""

    offsets: list[int]
    """Positions relative to that task: -1 is the last task under the old rule, 0 the first under the new one."""
    rows: dict[str, list[Figure]]
    """Success at each offset: `trained`, then every control. Where changes are drawn, offsets differ in their packs (`n`)."""
    drop: Figure
    """Of the trained policy: offset 0 minus offset -1, paired."""
    regained: Figure
    """Of the trained policy: last task of the pack minus offset 0, paired, over packs that go on after the change."""


class TrainingAdds(TypedDict):
    """What training adds to the transfer that it began with. Transfer is success from position 1 on, minus `blanked_context`."""

    temperature: float
    """Of the warm start: the one at which it solves most on these very packs."""
    trained: Figure
    """Transfer of the trained policy."""
    warm_start: Figure
    """Transfer of the warm start."""
    difference: Figure
    """The first minus the second, paired within packs."""


class Figures(TypedDict):
    """Comparisons of the conditions within packs."""

    area: dict[str, Both]
    """Area under the position curve, the mean over positions: `trained`, then every control. Of success it is the share of tasks
    that are solved, AppWorld's task goal completion (TGC)."""
    whole_packs: NotRequired[dict[str, Figure]]
    """Share of packs all of whose tasks are solved: `trained`, then every control. Where a pack is a scenario, as in `apps`, that
    is AppWorld's scenario goal completion (SGC, arXiv 2407.18901)."""
    differences: dict[str, Difference]
    """By control."""
    forward_transfer: ForwardTransfer | None
    """Null where no control without context was played."""
    regret: Regret | None
    """Null where the oracle did not play."""
    recovery: Recovery | None
    """Null where the rule does not change."""
    training_adds: NotRequired[TrainingAdds | None]
    """Null where one of the two was not played with its context blanked."""
    pass_at: NotRequired[dict[str, Figure]]
    """By k: pass@k of the trained policy, mean over positions, where its program makes several attempts at a task."""


class SuiteRecord(TypedDict):
    """One suite."""

    env: str
    packs: int
    rules: NotRequired[int]
    """How many different things the packs hide, which is what intervals resample; as many as packs where no two hide the same."""
    pack_size: int
    temperature: float
    positions: list[PositionRecord]
    """Of the trained policy at the suite's temperature."""
    controls: dict[str, list[PositionRecord]]
    """By the names of `controls.py` (`blanked_context`, `no_context`, ..., `scripted`, `oracle`), and the warm start's:
    `warm_start` (at the suite's temperature), `warm_start_t0.3`, ..."""
    cod_gain: float | None
    """Success at the last minus the first position."""
    paired: Paired
    checkpoint: NotRequired[str | None]
    """What was tested, as it was named; null for the policy as it stood at the end of `fit`."""
    policy: NotRequired[str]
    """Name of what `positions` are of, where nothing was trained: a checkpoint of others, a warm start, or `untrained`."""
    figures: NotRequired[Figures]


class Results(TypedDict):
    """The whole file."""

    suites: dict[str, SuiteRecord]
    """Of the run's policy, or of the checkpoint that was tested last."""
