"""Worlds that delegate to another one inside, and change some of it."""

import copy
from abc import abstractmethod
from operator import attrgetter
from typing import Any, TypeVar

from cod_lightning.envs.base import HiddenRules, TextEnv, Variants, beside
from cod_lightning.types import EpisodeStatus, Pack


def delegated(path: str) -> Any:
    """A property that is what `path` leads to, from the object on."""
    return property(attrgetter(path))


class DelegatingWorld(TextEnv):
    """Answers everything with the world `inside`, whose companions it has; a subclass says which that is, and overrides what it
    changes."""

    @property
    @abstractmethod
    def inside(self) -> TextEnv:
        """The world that answers."""

    @property
    def rules(self) -> str:
        return self.inside.rules

    @property
    def success(self) -> bool:
        return self.inside.success

    @property
    def status(self) -> EpisodeStatus:
        return self.inside.status

    @property
    def np_random(self) -> Any:
        return self.inside.np_random

    @np_random.setter
    def np_random(self, value: Any) -> None:
        self.inside.np_random = value

    max_turns = delegated("inside.max_turns")
    traits = delegated("inside.traits")
    observation_space = delegated("inside.observation_space")
    action_space = delegated("inside.action_space")
    _np_random = delegated("inside._np_random")
    reset = delegated("inside.reset")
    step = delegated("inside.step")


def innermost(env: TextEnv) -> TextEnv:
    """The world at the bottom of worlds that delegate."""
    while isinstance(env, DelegatingWorld):
        env = env.inside
    return env


W = TypeVar("W", bound="WrappedWorld")


class WrappedVariants(Variants[W]):
    """Those of the world inside, wrapped."""

    def categories(self) -> tuple[str, ...]:
        return beside(self.env.world, Variants).categories()

    def of_category(self, category: str) -> TextEnv:
        return self.env.around(beside(self.env.world, Variants).of_category(category))

    def without_world_memory(self) -> TextEnv:
        return self.env.around(beside(self.env.world, Variants).without_world_memory())


class WrappedRules(HiddenRules[W]):
    """Those of the world inside, for a world that says itself where the rule changes: here nowhere."""

    def hidden_rule(self, pack: Pack) -> str:
        return beside(self.env.world, HiddenRules).hidden_rule(pack)

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        return beside(self.env.world, HiddenRules).changed(pack, at, seed)


class WrappedWorld(DelegatingWorld):
    """Delegates everything; a subclass draws packs of its own out of `world`'s.

    Args:
        world: The world inside.
    """

    companions = (WrappedVariants,)

    def __init__(self, world: TextEnv) -> None:
        self.world = world
        self.name = world.name

    @property
    def inside(self) -> TextEnv:
        return self.world

    sample_pack = delegated("world.sample_pack")
    close = delegated("world.close")

    def around(self, inside: TextEnv) -> TextEnv:
        """This world around another one."""
        if inside is self.world:
            return self
        twin = copy.copy(self)
        twin.world = inside
        return twin
