"""A world around another one, which changes the packs and leaves everything else as it is."""

import copy
from typing import Any

import gymnasium

from cod_lightning.envs.base import Demonstrator, Reference, TextEnv, TextPolicy
from cod_lightning.types import EpisodeStatus, Pack, Split


class WrappedWorld(TextEnv):
    """Delegates everything; a subclass draws packs of its own out of `world`'s.

    Args:
        world: The world inside.
    """

    def __init__(self, world: TextEnv) -> None:
        self.world = world
        self.name = world.name

    @property
    def max_turns(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As inside."""
        return self.world.max_turns

    @property
    def reward_range(self) -> tuple[float, float]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As inside."""
        return self.world.reward_range

    @property
    def blocking(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As inside."""
        return self.world.blocking

    @property
    def observation_space(self) -> gymnasium.Space[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As inside."""
        return self.world.observation_space

    @property
    def action_space(self) -> gymnasium.Space[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As inside."""
        return self.world.action_space

    @property
    def rules(self) -> str:
        """As inside."""
        return self.world.rules

    @property
    def success(self) -> bool:
        """As inside."""
        return self.world.success

    @property
    def status(self) -> EpisodeStatus:
        """As inside."""
        return self.world.status

    def categories(self) -> tuple[str, ...]:
        """As inside."""
        return self.world.categories()

    def of_category(self, category: str) -> TextEnv:
        """As inside, wrapped alike."""
        return self._around(self.world.of_category(category))

    def words(self) -> tuple[str, ...]:
        """As inside."""
        return self.world.words()

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """As inside."""
        return self.world.sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """As inside."""
        return self.world.reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """As inside."""
        return self.world.step(action)  # pyright: ignore[reportReturnType]

    def render(self) -> Any:
        """As inside."""
        return self.world.render()

    def close(self) -> None:
        """As inside."""
        self.world.close()

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """As inside."""
        return self.world.changed(pack, at, seed)

    def without_world_memory(self) -> TextEnv:
        """As inside, wrapped alike."""
        return self._around(self.world.without_world_memory())

    def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
        """As inside."""
        return self.world.reference(kind, pack)

    def demonstrator(self, pack: Pack) -> Demonstrator:
        """As inside."""
        return self.world.demonstrator(pack)

    @property
    def np_random(self) -> Any:
        """As inside."""
        return self.world.np_random

    @np_random.setter
    def np_random(self, value: Any) -> None:
        self.world.np_random = value

    def _around(self, inside: TextEnv) -> TextEnv:
        """The same wrapper around another world."""
        if inside is self.world:
            return self
        twin = copy.copy(self)
        twin.world = inside
        return twin
