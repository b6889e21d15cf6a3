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
    own, trained = suite.temperature, PolicyLabel.TRAINED
    temperatures = {*suite.warm_start_temperatures, own} if suite.warm_start_temperatures else set()
    found = [("trained", trained, Control.NONE, own)]
    found += [(c.value, trained, c, own) for c in chosen if not c.is_reference]
    found += [(warm_start_name(t, own), PolicyLabel.WARM_START, Control.NONE, t) for t in sorted(temperatures)]
    found += [(c.value, PolicyLabel.REFERENCE, c, own) for c in chosen if c.is_reference]
    return tuple(
        Condition(suite=suite.name, policy=policy, control=control, temperature=float(temperature), name=name)
        for name, policy, control, temperature in found
    )


def warm_start_name(temperature: float, suite_temperature: float) -> str:
    """The warm start's key: `warm_start` at the suite's own temperature, `warm_start_tT` at any other."""
    return "warm_start" if temperature == suite_temperature else f"warm_start_t{float(temperature)}"
