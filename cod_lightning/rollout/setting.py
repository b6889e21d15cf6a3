"""What the lifecycles of a rollout have in common, and what is called as they end."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import TextEnv
from cod_lightning.lifecycles import ConnectTheDots, Program
from cod_lightning.rewards.base import Rewards
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.types import Episode, EpisodeKind, Lifecycle

if TYPE_CHECKING:
    from cod_lightning.models.base import Policy


class OtherPlayer(ABC):
    """Plays one kind of episodes with another policy than the trained one; chosen with `data.frozen`."""

    kind: EpisodeKind
    """The episodes that it plays."""

    @abstractmethod
    def check(self, vocabulary: dict[str, int]) -> None:
        """Raise `ConfigError` for what is not there, or has another tokenizer."""

    @abstractmethod
    def sampler(self, trained: Sampler, policy: "Policy", stop_ids: frozenset[int], device: Any = "cpu") -> Sampler:
        """The trained policy's sampler with this policy in its place."""


class RolloutMonitor:
    """Called as episodes end, so that the long part of a step shows progress; does nothing unless a subclass overrides it.

    The calls come from the rollout's own thread, so be quick.
    """

    def begin(self, label: str, num_lifecycles: int, num_tasks: int) -> None:
        """A rollout of that many lifecycles through packs of `num_tasks` tasks starts."""

    def episode(self, episode: Episode) -> None:
        """An episode has ended."""

    def lifecycle(self, lifecycle: Lifecycle) -> None:
        """A lifecycle has ended."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """An environment, an agent in it, and the order of its episodes."""

    env: TextEnv
    """A prototype, which stays untouched: each lifecycle has a copy."""
    mechanism: ContextMechanism
    sampler: Sampler
    program: Program = ConnectTheDots()  # noqa: RUF009  (frozen)
    rewards: Rewards = field(default_factory=dict)
    """Parts of an episode's reward; without any it is the environment's or the context's own."""
    monitor: RolloutMonitor = field(default_factory=RolloutMonitor)
    by_kind: Mapping[EpisodeKind, Sampler] = field(default_factory=dict)
    """The policies of kinds of episodes that another than `sampler`'s plays."""
