"""What is deployed after training: suites of held-out packs, fixed by identity, and the conditions under which each is played."""

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal

from cod_lightning.engines.base import Engine
from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ConfigError, answering
from cod_lightning.evaluation.controls import (
    CONTROLS,
    DEFAULT_CONTROLS,
    BlankedContext,
    ByEndpoint,
    ByWarmStart,
    Control,
    WarmStartBlanked,
)
from cod_lightning.ranges import Count, NonNegative, Several
from cod_lightning.rewards.base import is_name
from cod_lightning.rollout.transcript import see_kept
from cod_lightning.types import Pack, Split


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Held-out packs that the policy is deployed on, and the controls that go with them."""

    name: str
    """Key of this suite in `evaluation.json`, and part of file names."""
    num_packs: Several = 2048
    """P, packs; one lifecycle each."""
    pack_size: Several | None = None
    """N, tasks of a pack; null means data.pack_size."""
    temperature: NonNegative = 1.0
    """Sampling temperature of the trained policy; 0 is greedy."""
    split: Literal["train", "validation", "test"] = "test"
    """Share of the worlds that packs are drawn from."""
    seed: int = 0
    """Seed of the packs, the same for every policy, checkpoint and control."""
    controls: tuple[str | Control, ...] | None = None
    """What is played beside the trained policy: blanked_context, no_context, shuffled_context, oracle_context, random,
    memoryless, scripted, oracle. Null means blanked_context and those of the last four that the world has."""
    reference_packs: Several = 256
    """The world's references (random, memoryless, scripted, oracle) play so many of the packs, the first ones."""
    warm_start_temperatures: tuple[NonNegative, ...] = (0.0, 0.3, 0.5, 0.7, 1.0)
    """Temperatures at which the warm start plays the same packs, and the suite's own; empty for no warm start."""
    env: TextEnv | None = None
    """World of the packs; null means the one of the training."""
    wrap: Literal["none", "ralph_loop"] = "none"
    """Play that world as it is, or every pack as one task again and again."""
    change_at: Count | None = None
    """Position of the first task under another rule, from 1 on; null leaves the rule as it is."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            remedy = "It is part of file names; 'heldout' is a good one."
            raise ConfigError("data.suites.name", repr(self.name), "letters, digits, '.', '_' and '-'", remedy)
        valid = len(set(self.warm_start_temperatures)) == len(self.warm_start_temperatures)
        self._check("warm_start_temperatures", valid, "different numbers", "[0.0, 0.5, 1.0]")
        named = {one for one in self.controls or () if isinstance(one, str)}
        names = [one.name for one in self.conditions()] if named <= CONTROLS.keys() else []
        valid = len({*names, ByEndpoint.name}) > len(names) > 0
        self._check("controls", valid, f"each once, out of {', '.join(CONTROLS)}", "[blanked_context]")
        valid = all(is_name(one.name) for one in self.chosen)
        expected = "names, parts of file names, of letters, digits, '.', '_' and '-'"
        self._check("controls", valid, expected, "[blanked_context]")

    def within(self, world: TextEnv, pack_size: int) -> "Suite":
        """The suite with world and pack size settled for a training in this world; the world is wrapped as `wrap` asks."""
        env, size = self.env or world, self.pack_size or pack_size
        self._check("change_at", (self.change_at or 0) < size, f"in 1..{size - 1}, a task of the pack", "null")
        if self.wrap == "ralph_loop":
            from cod_lightning.envs.ralph_loop import RalphLoop

            env = RalphLoop(env)
        if self.change_at is not None:
            from cod_lightning.envs.non_stationary import NonStationary

            # else it would change at its own place, too
            env = NonStationary(env.world if isinstance(env, NonStationary) else env, self.change_at)
        return replace(self, env=env, pack_size=size, wrap="none", change_at=None)

    def packs(self, world: TextEnv) -> list[Pack]:
        """The packs, each by its identity: the same for every policy, checkpoint and machine.

        Raises `ConfigError` where two have one id, by which figures are paired.
        """
        assert self.pack_size is not None, "the pack size is open; call within()"
        draw, split, size = world.sample_pack, Split(self.split), self.pack_size
        with self.answering(world, "an environment that draws packs"):
            indices = range(self.num_packs)
            packs = [see_kept(draw(split=split, index=i, num_tasks=size, seed=self.seed)) for i in indices]
        if len({pack.id for pack in packs}) < len(packs):
            expected = f"packs with ids of their own; {world.name} gives several of these one id"
            remedy = "Put split, seed and index into the Pack's id, then `test` with the run's last checkpoint."
            raise ConfigError(f"data.suites.{self.name}.num_packs", self.num_packs, expected, remedy)
        return packs

    def answering(self, who: TextEnv | Control, expected: str) -> AbstractContextManager[None]:
        """What its world or a control raises becomes a `ConfigError` that names it."""
        key, remedy = f"data.suites.{self.name}", "Correct it, then `test` with the run's last checkpoint."
        return answering(lambda said: ConfigError(key, type(who).__name__, said, remedy), expected)

    @property
    def chosen(self) -> tuple[Control, ...]:
        """What is played beside the trained policy, the warm start aside."""
        chosen = DEFAULT_CONTROLS if self.controls is None else self.controls
        return tuple(CONTROLS[one] if isinstance(one, str) else one for one in chosen)

    def temperature_of(self, control: Control) -> float:
        """At which the policy is sampled under this control."""
        return float(self.temperature if control.temperature is None else control.temperature)

    def label(self, control: Control) -> str:
        """What a rollout under this control, and the file of its lifecycles, is called."""
        return f"test_{self.name}_{control.name}"

    def conditions(self, endpoint: Engine | None = None) -> tuple[Control, ...]:
        """Under what the suite is played, the trained policy first; with `endpoint` its model, too.

        The blanked warm start comes after the warm starts, which say at what temperature: `SuitePlayer` puts it in.

        >>> [c.name for c in Suite(name="a", controls=("no_context", "oracle"), warm_start_temperatures=(0.3,)).conditions()]
        ['trained', 'no_context', 'warm_start_t0.3', 'warm_start', 'oracle']
        """
        own, chosen = self.temperature, self.chosen
        temperatures = {*self.warm_start_temperatures, own} if self.warm_start_temperatures else set()
        found = [one for one in (Control(), *chosen) if one.weights == "trained"]
        found += [ByWarmStart(t, own) for t in sorted(temperatures)]
        if temperatures and any(isinstance(one, BlankedContext) for one in chosen):
            found.append(WarmStartBlanked())
        found += [ByEndpoint(endpoint)] if endpoint else []
        found += [one for one in chosen if one.weights != "trained"]
        return tuple(found)

    def _check(self, field: str, valid: bool, expected: str, example: str) -> None:
        if not valid:
            value, remedy = getattr(self, field), f"Set it to {example}, for example."
            raise ConfigError(f"data.suites.{self.name}.{field}", value, expected, remedy)
