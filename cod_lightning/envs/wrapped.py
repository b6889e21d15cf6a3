"""Worlds that delegate to another one inside, and change some of it."""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from cod_lightning.envs.base import TextEnv
from cod_lightning.envs.for_people import ForPeople
from cod_lightning.types import EpisodeStatus


def delegated(path: str) -> Any:
    """A property that is what `path` leads to, from the object on."""
    return property(attrgetter(path))


class DelegatingWorld(TextEnv):
    """Answers everything with the world `inside`; a subclass says which that is, and overrides what it changes."""

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

    @property
    def tools(self) -> Sequence[dict[str, Any]]:
        return self.inside.tools

    @property
    def results(self) -> Sequence[str]:
        return self.inside.results

    @property
    def offer(self) -> str:
        return self.inside.offer

    @property
    def for_people(self) -> ForPeople:
        return self.inside.for_people

    max_turns = delegated("inside.max_turns")
    reward_range = delegated("inside.reward_range")
    hides_reward = delegated("inside.hides_reward")
    blocking = delegated("inside.blocking")
    observation_space = delegated("inside.observation_space")
    action_space = delegated("inside.action_space")
    _np_random = delegated("inside._np_random")
    reset = delegated("inside.reset")
    step = delegated("inside.step")
    render = delegated("inside.render")
    proposed = delegated("inside.proposed")


def innermost(env: TextEnv) -> TextEnv:
    """The world at the bottom of worlds that delegate."""
    while isinstance(env, DelegatingWorld):
        env = env.inside
    return env


class WrappedWorld(DelegatingWorld):
    """Delegates everything; a subclass draws packs of its own out of `world`'s.

    Args:
        world: The world inside.
    """

    def __init__(self, world: TextEnv) -> None:
        self.world = world
        self.name = world.name

    @property
    def inside(self) -> TextEnv:
        return self.world

    sample_pack = delegated("world.sample_pack")
    categories = delegated("world.categories")
    words = delegated("world.words")
    close = delegated("world.close")
    changed = delegated("world.changed")
    hidden_rule = delegated("world.hidden_rule")
    reference = delegated("world.reference")
    demonstrator = delegated("world.demonstrator")

    def of_category(self, category: str) -> TextEnv:
        return self._around(self.world.of_category(category))

    def without_world_memory(self) -> TextEnv:
        return self._around(self.world.without_world_memory())

    def _around(self, inside: TextEnv) -> TextEnv:
        if inside is self.world:
            return self
        twin = copy.copy(self)
        twin.world = inside
        return twin
