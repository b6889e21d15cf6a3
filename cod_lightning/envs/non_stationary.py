"""Packs whose hidden rule changes at a task: a context that states the old rule is false from there on."""

import random
import re
from dataclasses import replace

from cod_lightning.envs.base import HiddenRules, TextEnv, beside
from cod_lightning.envs.wrapped import DelegatingWorld, WrappedRules, WrappedWorld
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Count
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split


class ChangingRules(WrappedRules["NonStationary"]):
    """Two of the world inside, one after the other."""

    def changes_at(self, pack: Pack) -> int | None:
        return self.env.change_position(pack) if len(pack) > 1 else None


class NonStationary(WrappedWorld):
    """The inner world's packs, with another hidden rule from some task on.

    Nothing but the rule changes: labels, names and tasks stay, so that only its effects show it (and, where the world
    itself remembers, its memory starting anew: switch that off). Oracle and demonstrator know the first rule, and only some
    worlds' oracles the second.

    Args:
        world: A world whose rule can change (`HiddenRules.changed`).
        change_at: Position of the first task under the new rule, from 1 on; null draws one in 1..N-1 for each pack.
    """

    companions = (ChangingRules, *WrappedWorld.companions)

    def __init__(self, world: TextEnv, change_at: Count | None = None) -> None:
        super().__init__(world)
        inner = world
        while isinstance(inner, DelegatingWorld):
            if isinstance(inner, NonStationary):
                expected = f"a world whose rule does not change yet, and {inner.name} does at a place of its own"
                raise ConfigError("data.env.world", type(world).__name__, expected, "Name the world inside.")
            inner = inner.inside
        self.change_at = change_at
        self.name = f"changing{'' if change_at is None else change_at}-{world.name}"

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """A pack that changes at `change_position`; one of a single task does not change."""
        inner = self.world.sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed)
        if num_tasks > 1:
            at = self.change_position(inner)
            inner = beside(self.world, HiddenRules).changed(inner, at, derive_seed("change", seed, index))
        return replace(inner, id=f"changing{self.change_at or ''}-{inner.id}")

    def change_position(self, pack: Pack) -> int:
        """Position of the pack's first task under the new rule."""
        if self.change_at is None:
            # not of what it hides, which would then foretell the change, nor of the visit that a source says behind ~
            own = re.sub(r"~\d+$", "", pack.id.removeprefix("changing-"))
            return random.Random(derive_seed("change position", own)).randint(1, len(pack) - 1)
        if self.change_at >= len(pack):
            expected = f"in 1..{len(pack) - 1}, a task of the pack"
            raise ConfigError("data.env.change_at", self.change_at, expected, "Lower it, or use null.")
        return self.change_at
