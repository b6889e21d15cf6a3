"""The conditions that a suite is played under, with their temperatures and keys."""

from dataclasses import dataclass

from cod_lightning.evaluation.condition_kinds import DEFAULT_CONTROLS, OF_TRAINED, REFERENCES, ConditionKind
from cod_lightning.evaluation.suite import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One way to play a suite."""

    suite: str
    kind: ConditionKind
    temperature: float
    name: str
    """`trained`, or the key among the suite's controls in `evaluation.json`, such as `warm_start_t0.3`."""

    @property
    def label(self) -> str:
        """What a rollout of it, and the file of its lifecycles, is called."""
        return f"test_{self.suite}_{self.name}"


def conditions(suite: Suite, *, endpoint: bool = False) -> tuple[Condition, ...]:
    """All conditions of the suite, the trained policy's first; with `endpoint` that of another model, too.

    The blanked warm start comes after the warm starts, which say at what temperature: `SuitePlayer` puts it in.

    >>> [c.name for c in conditions(Suite(name="held_out", controls=("no_context", "oracle"), warm_start_temperatures=(0.3,)))]
    ['trained', 'no_context', 'warm_start_t0.3', 'warm_start', 'oracle']
    """
    chosen = [ConditionKind(c) for c in (DEFAULT_CONTROLS if suite.controls is None else suite.controls)]
    if not suite.blanked_context:
        chosen = [kind for kind in chosen if kind is not ConditionKind.BLANKED_CONTEXT]
    own = suite.temperature
    temperatures = {*suite.warm_start_temperatures, own} if suite.warm_start_temperatures else set()
    found = [(kind.value, kind, own) for kind in (ConditionKind.TRAINED, *chosen) if kind in OF_TRAINED]
    found += [(warm_start_name(t, own), ConditionKind.WARM_START, t) for t in sorted(temperatures)]
    if temperatures and ConditionKind.BLANKED_CONTEXT in chosen:
        found.append((ConditionKind.WARM_START_BLANKED.value, ConditionKind.WARM_START_BLANKED, own))
    found += [(ConditionKind.ENDPOINT.value, ConditionKind.ENDPOINT, own)] if endpoint else []
    found += [(kind.value, kind, own) for kind in chosen if kind in REFERENCES]
    return tuple(
        Condition(suite=suite.name, kind=kind, temperature=float(temperature), name=name)
        for name, kind, temperature in found
    )


def warm_start_name(temperature: float, suite_temperature: float) -> str:
    """The warm start's key: `warm_start` at the suite's own temperature, `warm_start_tT` at any other."""
    return "warm_start" if temperature == suite_temperature else f"warm_start_t{float(temperature)}"
