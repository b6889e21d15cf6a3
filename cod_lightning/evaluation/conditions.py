"""The conditions under which a suite is played: whose turns, at which temperature, with which control."""

from dataclasses import dataclass
from enum import StrEnum

from cod_lightning.evaluation.controls import DEFAULT_CONTROLS, Control
from cod_lightning.evaluation.suite import Suite


class PolicyLabel(StrEnum):
    """Whose turns are played; each is a pass of `test` of its own."""

    TRAINED = "trained"
    """The policy that was trained."""
    WARM_START = "warm_start"
    """The policy as it was before reinforcement learning."""
    REFERENCE = "reference"
    """The world's own policies, without a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One way to play a suite."""

    suite: str
    policy: PolicyLabel
    control: Control = Control.NONE
    temperature: float
    name: str
    """`trained`, or the key among the suite's controls in `evaluation.json`, such as `warm_start_t0.3`."""

    @property
    def label(self) -> str:
        """What a rollout of it, and the file of its lifecycles, is called."""
        return f"test_{self.suite}_{self.name}"


def conditions(suite: Suite) -> tuple[Condition, ...]:
    """All conditions of the suite, the trained policy's first.

    >>> [c.name for c in conditions(Suite(name="held_out", controls=("no_context", "oracle"), warm_start_temperatures=(0.3,)))]
    ['trained', 'no_context', 'warm_start_t0.3', 'warm_start', 'oracle']
    """
    chosen = [Control(c) for c in (DEFAULT_CONTROLS if suite.controls is None else suite.controls)]
    if not suite.blanked_context:
        chosen = [control for control in chosen if control is not Control.BLANKED_CONTEXT]
    trained = [_condition(suite, "trained", PolicyLabel.TRAINED)]
    trained += [_condition(suite, c, PolicyLabel.TRAINED, control=c) for c in chosen if not c.is_reference]
    references = [_condition(suite, c, PolicyLabel.REFERENCE, control=c) for c in chosen if c.is_reference]
    temperatures = {*suite.warm_start_temperatures, suite.temperature} if suite.warm_start_temperatures else set()
    warm_starts = [
        _condition(suite, warm_start_name(t, suite.temperature), PolicyLabel.WARM_START, temperature=t)
        for t in sorted(temperatures)
    ]
    return tuple(trained + warm_starts + references)


def warm_start_name(temperature: float, suite_temperature: float) -> str:
    """The warm start's key: `warm_start` at the suite's own temperature, `warm_start_tT` at any other."""
    return "warm_start" if temperature == suite_temperature else f"warm_start_t{float(temperature)}"


def _condition(
    suite: Suite,
    name: str,
    policy: PolicyLabel,
    *,
    control: Control = Control.NONE,
    temperature: float | None = None,
) -> Condition:
    chosen = suite.temperature if temperature is None else temperature
    return Condition(suite=suite.name, policy=policy, control=control, temperature=float(chosen), name=str(name))
