"""A mixture of worlds: every pack comes from one of them, drawn by weight."""

import asyncio
import copy
import itertools
import random
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from cod_lightning.envs.base import (
    Demonstrator,
    HiddenRules,
    Players,
    Proposals,
    Reference,
    TextEnv,
    TextPolicy,
    Traits,
    Variants,
    Vocabulary,
    beside,
)
from cod_lightning.envs.wrapped import DelegatingWorld
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Positive
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Observation, Pack, Split, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedTask:
    """A task, and the key of the world that it belongs to."""

    world: str
    spec: object


class MixedVariants(Variants["Mixture"]):
    """Parts of the environments."""

    def categories(self) -> tuple[str, ...]:
        return tuple(self.env.worlds)

    def of_category(self, category: str) -> TextEnv:
        assert category in self.env.worlds, f"{category} is none of {self.categories()}"
        twin = copy.copy(self.env)
        twin.weights = {category: 1.0}
        return twin

    def without_world_memory(self) -> TextEnv:
        worlds = {key: beside(world, Variants).without_world_memory() for key, world in self.env.worlds.items()}
        if all(worlds[key] is world for key, world in self.env.worlds.items()):
            return self.env
        twin = copy.copy(self.env)
        twin.worlds = worlds
        return twin


class MixedVocabulary(Vocabulary["Mixture"]):
    """The words of the environments."""

    def words(self) -> tuple[str, ...]:
        """All worlds' words, each once; none unless every world has a closed vocabulary."""
        spoken = [beside(world, Vocabulary).words() for world in self.env.worlds.values()]
        return tuple(dict.fromkeys(itertools.chain(*spoken))) if all(spoken) else ()


class MixedProposals(Proposals["Mixture"]):
    """What may be proposed in the environments."""

    @property
    def offer(self) -> str:
        """That of the present task's world; empty unless every world has one."""
        offers = all(beside(world, Proposals).offer for world in self.env.worlds.values())
        return beside(self.env.inside, Proposals).offer if offers else ""

    def proposed(self, response: str, task: Task) -> Task | None:
        mixed = _spec(task)
        made = beside(self.env.worlds[mixed.world], Proposals).proposed(response, replace(task, spec=mixed.spec))
        return made and replace(made, spec=replace(mixed, spec=made.spec))


class MixedRules(HiddenRules["Mixture"]):
    """What packs of the environments hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        key, inner = self.env._inner(pack)
        return self.env._mixed(key, beside(self.env.worlds[key], HiddenRules).changed(inner, at, seed))

    def hidden_rule(self, pack: Pack) -> str:
        key, inner = self.env._inner(pack)
        return f"{key} {beside(self.env.worlds[key], HiddenRules).hidden_rule(inner)}"

    def changes_at(self, pack: Pack) -> int | None:
        key, inner = self.env._inner(pack)
        return beside(self.env.worlds[key], HiddenRules).changes_at(inner)


class MixedPlayers(Players["Mixture"]):
    """Who plays the environments."""

    def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
        key, inner = self.env._inner(pack)
        return beside(self.env.worlds[key], Players).reference(kind, inner)

    def demonstrator(self, pack: Pack) -> Demonstrator:
        key, inner = self.env._inner(pack)
        return beside(self.env.worlds[key], Players).demonstrator(inner)


class Mixture(DelegatingWorld):
    """Packs of several worlds; never mixed within a pack.

    Args:
        worlds: The worlds, each under a key of its own.
        weights: How often each key is drawn, relative to the others; null for equally often. One for every world, or none.
    """

    companions = (MixedVariants, MixedVocabulary, MixedProposals, MixedRules, MixedPlayers)

    def __init__(self, worlds: dict[str, TextEnv], weights: dict[str, Positive] | None = None) -> None:
        if not worlds:
            raise ConfigError("data.env.worlds", "{}", "at least one world", "Name one.")
        shares = dict.fromkeys(worlds, 1.0) if weights is None else weights
        if set(shares) != set(worlds):
            expected = f"a weight for each of {sorted(worlds)}"
            raise ConfigError("data.env.weights", sorted(shares), expected, "Leave it out for equal ones.")
        self.worlds, self.weights = worlds, shares
        self.name = "+".join(world.name for world in worlds.values())
        self._here = next(iter(worlds))

    @property
    def inside(self) -> TextEnv:
        return self.worlds[self._here]

    @property
    def traits(self) -> Traits:
        """Those of the present task's world; blocking, and showing images, where any world is or does: before `reset` it is open
        which one's task comes."""
        traits = [world.traits for world in self.worlds.values()]
        return replace(
            self.inside.traits,
            blocking=any(one.blocking for one in traits),
            shows_images=any(one.shows_images for one in traits),
        )

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """A pack of the world that this identity draws; its id is that of the world's own pack."""
        rng = random.Random(derive_seed("mixture", *sorted(self.worlds), str(split), seed, index))
        key = rng.choices(list(self.worlds), [self.weights.get(key, 0.0) for key in self.worlds])[0]
        return self._mixed(key, self.worlds[key].sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start `options["task"]` in its world, or, without one, whatever the first world starts."""
        if not (options and "task" in options):
            self._here = next(iter(self.worlds))
            return self.inside.reset(seed=seed)
        task = options["task"]
        self._here = _spec(task).world
        return self.inside.reset(seed=seed, options={"task": replace(task, spec=_spec(task).spec)})

    def close(self) -> Any:
        """All of them, also where one raises; of asynchronous ones a future to await."""
        closing: list[Any] = []
        with ExitStack() as stack:
            for world in self.worlds.values():
                stack.callback(lambda world=world: closing.append(world.close()))
        awaited = [one for one in closing if asyncio.isfuture(one)]
        return asyncio.gather(*awaited) if awaited else None

    @staticmethod
    def _mixed(key: str, pack: Pack) -> Pack:
        return replace(pack, tasks=tuple(replace(t, spec=MixedTask(world=key, spec=t.spec)) for t in pack.tasks))

    @staticmethod
    def _inner(pack: Pack) -> tuple[str, Pack]:
        inner = tuple(replace(task, spec=_spec(task).spec) for task in pack.tasks)
        return _spec(pack.tasks[0]).world, replace(pack, tasks=inner)


def _spec(task: Task) -> MixedTask:
    assert isinstance(task.spec, MixedTask), f"task {task.id} is not of a mixture"
    return task.spec
