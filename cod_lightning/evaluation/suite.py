"""What is deployed after training: suites of held-out packs, and the conditions under which each suite is played."""

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split


class PolicyLabel(StrEnum):
    """Whose turns are played."""

    TRAINED = "trained"
    """The policy that was trained."""
    WARM_START = "warm_start"
    """The policy as it was before reinforcement learning."""
    SCRIPTED = "scripted"
    """The world's own scripted reference, which knows the rules of the game but not the hidden one."""


class Control(StrEnum):
    """What is taken away from the agent."""

    NONE = "none"
    BLANKED_CONTEXT = "blanked_context"
    """No solve prompt shows the context (see `BlankedContext`)."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Held-out packs that the policy is deployed on, and the controls that go with them."""

    name: str
    """Key of this suite in `evaluation.json`, and part of file names."""
    num_packs: int = 2048
    """P, packs; one lifecycle each."""
    pack_size: int = 4
    """N, tasks of a pack."""
    temperature: float = 1.0
    """Sampling temperature of the trained policy; 0 is greedy."""
    split: Split | str = Split.TEST
    """Share of the worlds that packs are drawn from: train, validation or test."""
    seed: int = 0
    """Seed of the packs, the same for every policy and control."""
    blanked_context: bool = True
    """Also play with the context hidden from every solve prompt."""
    warm_start_temperatures: tuple[float, ...] = (0.0, 0.3, 0.5, 0.7, 1.0)
    """Temperatures at which the warm start plays the same packs, and the suite's own; empty for no warm start."""
    env: TextEnv | None = None
    """World of the packs; null means the one of the training."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            remedy = "It is part of file names; 'heldout' is a good one."
            raise ConfigError("data.suites.name", repr(self.name), "letters, digits, '.', '_' and '-'", remedy)
        self._check(
            "num_packs", self.num_packs, self.num_packs >= 2, "at least 2, since intervals resample packs", "2048"
        )
        self._check(
            "pack_size", self.pack_size, self.pack_size >= 2, "at least 2, since a gain compares positions", "4"
        )
        self._check("temperature", self.temperature, _is_temperature(self.temperature), "a number from 0 on", "1.0")
        temperatures = self.warm_start_temperatures
        valid = all(_is_temperature(t) for t in temperatures) and len(set(temperatures)) == len(temperatures)
        self._check("warm_start_temperatures", temperatures, valid, "different numbers from 0 on", "[0.0, 0.5, 1.0]")
        self._check("split", self.split, self.split in list(Split), f"one of {', '.join(Split)}", "test")
        object.__setattr__(self, "split", Split(self.split))

    def _check(self, field: str, value: object, valid: bool, expected: str, example: str) -> None:
        if not valid:
            raise ConfigError(f"data.suites.{self.name}.{field}", value, expected, f"Set it to {example}, for example.")


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

    >>> [c.name for c in conditions(Suite(name="heldout", warm_start_temperatures=(0.3,)))]
    ['trained', 'blanked_context', 'warm_start_t0.3', 'warm_start']
    """
    found = [_condition(suite, "trained", PolicyLabel.TRAINED)]
    if suite.blanked_context:
        found.append(_condition(suite, "blanked_context", PolicyLabel.TRAINED, control=Control.BLANKED_CONTEXT))
    if suite.warm_start_temperatures:
        for temperature in sorted({*suite.warm_start_temperatures, suite.temperature}):
            name = warm_start_name(temperature, suite.temperature)
            found.append(_condition(suite, name, PolicyLabel.WARM_START, temperature=temperature))
    return tuple(found)


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
    return Condition(suite=suite.name, policy=policy, control=control, temperature=float(chosen), name=name)


def _is_temperature(value: float) -> bool:
    return math.isfinite(value) and value >= 0
