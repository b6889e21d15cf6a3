"""What is deployed after training: suites of held-out packs, fixed by identity, and the conditions under which each is played.

The conditions are the trained policy, its controls, the warm start and the references. Each control answers one way in which a
rising curve could be luck: tasks that get easier, a world that remembers, a habit that needs no context, a context that only looks
useful.
"""

import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from cod_lightning.envs.base import Reference, TextEnv
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import NonNegative, PositiveShare, Several
from cod_lightning.types import Pack, Split


class ConditionKind(StrEnum):
    """A control's value is its key among a suite's `controls` in `evaluation.json`."""

    TRAINED = "trained"
    """The policy that was trained, with the contexts that it writes."""
    BLANKED_CONTEXT = "blanked_context"
    """The trained policy writes contexts as usual, and no solve prompt shows them."""
    NO_CONTEXT = "no_context"
    """Solve episodes only: no context is written, and a solve prompt is the world's rules alone."""
    SHUFFLED_CONTEXT = "shuffled_context"
    """Solve episodes only: the prompt at position n shows what the trained agent had there in the suite's next pack (after
    the last pack comes the first). At position 0 that is the empty context. It may happen to be true here."""
    ORACLE_CONTEXT = "oracle_context"
    """Solve episodes only: from position 0 on, the prompt shows what the world's oracle writes down after its first task of
    the pack; where the rule changes, from there on what the oracle of the new rule writes."""
    NO_WORLD_MEMORY = "no_world_memory"
    """As trained, in the same packs, in a world that carries nothing from task to task itself; left out where it never does."""
    WARM_START = "warm_start"
    """The policy as it was before reinforcement learning."""
    WARM_START_BLANKED = "warm_start_blanked"
    """The warm start at its best temperature, with `blanked_context`: what its contexts are worth."""
    ENDPOINT = "endpoint"
    """A model behind a chat endpoint, with the contexts that it writes (`data.baseline`)."""
    RANDOM = "random"
    """The world's reference that answers legally at random."""
    MEMORYLESS = "memoryless"
    """The world's scripted reference with its context hidden; memory that the world itself has stays."""
    SCRIPTED = "scripted"
    """The world's scripted reference: perfect memory, play that is best for each task by itself."""
    ORACLE = "oracle"
    """The world's reference that knows what is hidden; where the rule changes, from there on the one of the new rule. A ceiling
    for tasks taken one by one; the other references are none."""

    @property
    def reference(self) -> Reference | None:
        """The world's reference that it needs, for the turns or for the contexts shown; None for most."""
        if self is ConditionKind.MEMORYLESS:
            return Reference.SCRIPTED
        if self is ConditionKind.ORACLE_CONTEXT:
            return Reference.ORACLE
        return Reference(self.value) if self in REFERENCES else None


CONTEXT_CONTROLS = (
    ConditionKind.BLANKED_CONTEXT,
    ConditionKind.NO_CONTEXT,
    ConditionKind.SHUFFLED_CONTEXT,
    ConditionKind.ORACLE_CONTEXT,
    ConditionKind.NO_WORLD_MEMORY,
)
"""Played with the trained weights, with another context or another memory."""
OF_TRAINED = (ConditionKind.TRAINED, *CONTEXT_CONTROLS)
"""All that are played with the trained weights."""
REFERENCES = (ConditionKind.RANDOM, ConditionKind.MEMORYLESS, ConditionKind.SCRIPTED, ConditionKind.ORACLE)
"""Played by the world's own policies: they need no weights, and are the same whatever was trained."""
CONTROLS = (*CONTEXT_CONTROLS, *REFERENCES)
"""What a suite's `controls` can name."""
DEFAULT_CONTROLS = (ConditionKind.BLANKED_CONTEXT, *REFERENCES)
"""The controls of a suite that names none, as far as its world has the references."""


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


def warm_start_name(temperature: float, suite_temperature: float) -> str:
    """The warm start's key: `warm_start` at the suite's own temperature, `warm_start_tT` at any other."""
    return "warm_start" if temperature == suite_temperature else f"warm_start_t{float(temperature)}"


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
    top_p: PositiveShare = 1.0
    """All policies sample from the likeliest tokens whose mass reaches this; 1: all."""
    split: Literal["train", "validation", "test"] = "test"
    """Share of the worlds that packs are drawn from."""
    seed: int = 0
    """Seed of the packs, the same for every policy, checkpoint and control."""
    controls: tuple[ConditionKind | str, ...] | None = None
    """What is played beside the trained policy: blanked_context, no_context, shuffled_context, oracle_context, no_world_memory,
    random, memoryless, scripted, oracle. Null means blanked_context and those of the last four that the world has."""
    reference_packs: Several = 256
    """The world's references (random, memoryless, scripted, oracle) play so many of the packs, the first ones."""
    warm_start_temperatures: tuple[NonNegative, ...] = (0.0, 0.3, 0.5, 0.7, 1.0)
    """Temperatures at which the warm start plays the same packs, and the suite's own; empty for no warm start."""
    env: TextEnv | None = None
    """World of the packs; null means the one of the training."""
    wrap: Literal["none", "ralph_loop", "non_stationary"] = "none"
    """Play that world as it is, every pack as one task again and again, or with a rule that changes on the way."""
    change_at: int | None = None
    """With wrap: non_stationary, position of the first task under the new rule; null draws one for each pack."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            remedy = "It is part of file names; 'heldout' is a good one."
            raise ConfigError("data.suites.name", repr(self.name), "letters, digits, '.', '_' and '-'", remedy)
        valid = len(set(self.warm_start_temperatures)) == len(self.warm_start_temperatures)
        self._check("warm_start_temperatures", valid, "different numbers", "[0.0, 0.5, 1.0]")
        self._check_controls()
        self._check_change(self.pack_size)

    def within(self, world: TextEnv, pack_size: int) -> "Suite":
        """The suite with world and pack size settled for a training in this world; the world is wrapped as `wrap` asks."""
        env, size = self.env or world, self.pack_size or pack_size
        self._check_change(size)
        if self.wrap == "ralph_loop":
            from cod_lightning.envs.ralph_loop import RalphLoop

            env = RalphLoop(env)
        elif self.wrap == "non_stationary":
            from cod_lightning.envs.non_stationary import NonStationary

            env = NonStationary(env, self.change_at)
        return replace(self, env=env, pack_size=size, wrap="none", change_at=None)

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
        changing = self.wrap == "non_stationary"
        self._check("change_at", changing, "null unless wrap is non_stationary", "null")
        last = math.inf if size is None else size - 1
        self._check("change_at", 1 <= self.change_at <= last, f"in 1..{last}, a later task of the pack", "null")

    def _check(self, field: str, valid: bool, expected: str, example: str) -> None:
        if not valid:
            value, remedy = getattr(self, field), f"Set it to {example}, for example."
            raise ConfigError(f"data.suites.{self.name}.{field}", value, expected, remedy)
