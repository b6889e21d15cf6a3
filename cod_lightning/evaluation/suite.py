"""What is deployed after training: suites of held-out packs, fixed by identity, and the controls that go with each."""

import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum

from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.conditions import (
    CONTROLS,
    DEFAULT_CONTROLS,
    OF_TRAINED,
    REFERENCES,
    Condition,
    ConditionKind,
    warm_start_name,
)
from cod_lightning.types import Pack, Split


class Wrap(StrEnum):
    """What is done to the world of a suite."""

    NONE = "none"
    RALPH_LOOP = "ralph_loop"
    """Every pack is one task again and again."""
    NON_STATIONARY = "non_stationary"
    """The hidden rule of every pack changes on the way."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Held-out packs that the policy is deployed on, and the controls that go with them."""

    name: str
    """Key of this suite in `evaluation.json`, and part of file names."""
    num_packs: int = 2048
    """P, packs; one lifecycle each."""
    pack_size: int | None = None
    """N, tasks of a pack; null means data.pack_size."""
    temperature: float = 1.0
    """Sampling temperature of the trained policy; 0 is greedy."""
    top_p: float = 1.0
    """All policies sample from the likeliest tokens whose mass reaches this; 1: all."""
    top_k: int = 0
    """And from so many of the likeliest; 0: all."""
    min_p: float = 0.0
    """And from those that are at least so likely, compared with the likeliest; 0: all."""
    split: Split | str = Split.TEST
    """Share of the worlds that packs are drawn from: train, validation or test."""
    seed: int = 0
    """Seed of the packs, the same for every policy, checkpoint and control."""
    controls: tuple[ConditionKind | str, ...] | None = None
    """What is played beside the trained policy: blanked_context, no_context, shuffled_context, oracle_context, no_world_memory,
    random, memoryless, scripted, oracle. Null means blanked_context and those of the last four that the world has."""
    reference_packs: int = 256
    """The world's references (random, memoryless, scripted, oracle) play so many of the packs, the first ones."""
    warm_start_temperatures: tuple[float, ...] = (0.0, 0.3, 0.5, 0.7, 1.0)
    """Temperatures at which the warm start plays the same packs, and the suite's own; empty for no warm start."""
    env: TextEnv | None = None
    """World of the packs; null means the one of the training."""
    wrap: Wrap | str = Wrap.NONE
    """Play that world as it is (none), one task again and again (ralph_loop), or with a rule that changes (non_stationary)."""
    change_at: int | None = None
    """With wrap: non_stationary, position of the first task under the new rule; null draws one for each pack."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            remedy = "It is part of file names; 'heldout' is a good one."
            raise ConfigError("data.suites.name", repr(self.name), "letters, digits, '.', '_' and '-'", remedy)
        size, temperatures = self.pack_size, self.warm_start_temperatures
        self._check("num_packs", self.num_packs >= 2, "at least 2, since intervals resample packs", "2048")
        self._check("reference_packs", self.reference_packs >= 2, "at least 2, since intervals resample packs", "256")
        self._check("pack_size", size is None or size >= 2, "at least 2, since a gain compares positions", "4")
        self._check("temperature", _is_temperature(self.temperature), "a number from 0 on", "1.0")
        self._check("top_p", 0 < self.top_p <= 1, "above 0, at most 1", "1.0")
        self._check("top_k", self.top_k >= 0, "at least 0", "20")
        self._check("min_p", 0 <= self.min_p <= 1, "from 0 to 1", "0.05")
        valid = all(_is_temperature(t) for t in temperatures) and len(set(temperatures)) == len(temperatures)
        self._check("warm_start_temperatures", valid, "different numbers from 0 on", "[0.0, 0.5, 1.0]")
        self._check("split", self.split in list(Split), f"one of {', '.join(Split)}", "test")
        self._check("wrap", self.wrap in list(Wrap), f"one of {', '.join(Wrap)}", "none")
        object.__setattr__(self, "split", Split(self.split))
        object.__setattr__(self, "wrap", Wrap(self.wrap))
        self._check_controls()
        self._check_change(size)

    def within(self, world: TextEnv, pack_size: int) -> "Suite":
        """The suite with world and pack size settled for a training in this world; the world is wrapped as `wrap` asks."""
        env, size = self.env or world, self.pack_size or pack_size
        self._check_change(size)
        if self.wrap is Wrap.RALPH_LOOP:
            from cod_lightning.envs.ralph_loop import RalphLoop

            env = RalphLoop(env)
        elif self.wrap is Wrap.NON_STATIONARY:
            from cod_lightning.envs.non_stationary import NonStationary

            env = NonStationary(env, self.change_at)
        return replace(self, env=env, pack_size=size, wrap=Wrap.NONE, change_at=None)

    def packs(self, world: TextEnv) -> list[Pack]:
        """The packs, each by its identity: the same for every policy, checkpoint and machine.

        Raises `ConfigError` where two have one id, by which figures are paired.
        """
        assert self.pack_size is not None, "the pack size is open; call within()"
        draw, split, size = world.sample_pack, Split(self.split), self.pack_size
        packs = [draw(split=split, index=i, num_tasks=size, seed=self.seed) for i in range(self.num_packs)]
        if len({pack.id for pack in packs}) < len(packs):
            expected = f"packs with ids of their own; {world.name} gives several of these one id"
            remedy = "Put split, seed and index into the Pack's id, then `test` with the run's last checkpoint."
            raise ConfigError(f"data.suites.{self.name}.num_packs", self.num_packs, expected, remedy)
        return packs

    def conditions(self, *, endpoint: bool = False) -> tuple[Condition, ...]:
        """All conditions, the trained policy's first; with `endpoint` that of another model, too.

        The blanked warm start comes after the warm starts, which say at what temperature: `SuitePlayer` puts it in.

        >>> [c.name for c in Suite(name="a", controls=("no_context", "oracle"), warm_start_temperatures=(0.3,)).conditions()]
        ['trained', 'no_context', 'warm_start_t0.3', 'warm_start', 'oracle']
        """
        chosen = [ConditionKind(c) for c in (DEFAULT_CONTROLS if self.controls is None else self.controls)]
        own = self.temperature
        temperatures = {*self.warm_start_temperatures, own} if self.warm_start_temperatures else set()
        found = [(kind.value, kind, own) for kind in (ConditionKind.TRAINED, *chosen) if kind in OF_TRAINED]
        found += [(warm_start_name(t, own), ConditionKind.WARM_START, t) for t in sorted(temperatures)]
        if temperatures and ConditionKind.BLANKED_CONTEXT in chosen:
            found.append((ConditionKind.WARM_START_BLANKED.value, ConditionKind.WARM_START_BLANKED, own))
        found += [(ConditionKind.ENDPOINT.value, ConditionKind.ENDPOINT, own)] if endpoint else []
        found += [(kind.value, kind, own) for kind in chosen if kind in REFERENCES]
        return tuple(Condition(suite=self.name, kind=kind, temperature=float(t), name=name) for name, kind, t in found)

    def _check_controls(self) -> None:
        if self.controls is None:
            return
        valid = set(self.controls) <= set(CONTROLS) and len(set(self.controls)) == len(self.controls)
        self._check("controls", valid, f"each once, out of {', '.join(CONTROLS)}", "[blanked_context]")
        object.__setattr__(self, "controls", tuple(map(ConditionKind, self.controls)))

    def _check_change(self, size: int | None) -> None:
        if self.change_at is None:
            return
        changing = self.wrap is Wrap.NON_STATIONARY
        self._check("change_at", changing, "null unless wrap is non_stationary", "null")
        last = math.inf if size is None else size - 1
        self._check("change_at", 1 <= self.change_at <= last, f"in 1..{last}, a later task of the pack", "null")

    def _check(self, field: str, valid: bool, expected: str, example: str) -> None:
        if not valid:
            value, remedy = getattr(self, field), f"Set it to {example}, for example."
            raise ConfigError(f"data.suites.{self.name}.{field}", value, expected, remedy)


def _is_temperature(value: float) -> bool:
    return math.isfinite(value) and value >= 0
