"""Replay: episodes of earlier rollouts join later updates. The contract of a replay; `replay_buffer.py` keeps the rows.

A stored episode keeps its exact token ids, the log-probs of the policy that sampled it, and what it was credited. In a later update
it is a row like any other, whose ratio is that of the trained weights to the policy that sampled it: the policy loss, or
`model.mismatch`, corrects for its age.
"""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cod_lightning.credit.credited import NO_ADVANTAGE
from cod_lightning.ranges import Count

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEpisode:
    """An episode that was trained on, and what it was credited; without its tokens."""

    rollout: int
    """Number of the training rollout in which it was played, from 0 on."""
    pack_id: str
    sibling: int
    episode: int
    """Index e in the order of its lifecycle."""
    kind: str
    """Of `EpisodeKind`: solve, update or write."""
    position: int
    """Of its task in the pack."""
    policy_version: int
    """The oldest one among its tokens."""
    episode_return: float
    """By the run's credit rule."""
    group_return: float
    """Mean return of the siblings at its place."""
    advantage: float
    """Against its siblings of then, before a reweighting such as RED."""
    num_tokens: int
    """Of its rows, prompts included."""
    of_equals: float = 0.0
    """What the advantage would be if all siblings had done equally well, as by `AsymRE`."""

    @property
    def place(self) -> str:
        """Kind and position; at one index, lifecycles of other lengths may have other kinds."""
        return f"{self.kind} {self.position}"


@dataclass(frozen=True, kw_only=True)
class RecordedRollout:
    """A training rollout of all ranks; the same on every rank."""

    number: int
    policy_version: int
    """The newest one among its tokens."""
    episodes: Sequence[RecordedEpisode]
    """Those with an advantage, in the order of pack, sibling and episode."""
    packs: Mapping[int, str]
    """g -> identity of the pack."""
    without_signal: frozenset[int]
    """The packs, by g, in which no sibling did better than another."""
    updates: Sequence[Sequence[int]]
    """Packs of each update that is made of it, by g; where episodes are shuffled, in the update that has the first of theirs, and
    those of which none is trained on in turn."""


@dataclass(frozen=True, slots=True)
class ReplayedEpisode:
    """A stored episode that joins an update, and the advantage that its tokens have there."""

    episode: RecordedEpisode
    advantage: float


class Replay(ABC):
    """Chooses what is stored of a rollout, and which stored episodes join its updates.

    After every rollout: `observe` the rollout, `choose` among the episodes of earlier ones, then those of the rollout itself are
    stored if `worth` is above 0. Every rank has a replay of its own, which sees the same calls with the same values; all choose
    alike where randomness derives from identities (`derive_seed`). The state changes in `observe` alone.

    Args:
        max_episodes: Most episodes that are stored, on all ranks together. Beyond, those of the least worth go first, older ones
            first among equals.
        max_tokens: Most tokens that are stored, likewise; a token takes 13 bytes, in memory and in every checkpoint.
        max_age: Policy versions that a stored episode may be behind the rollout that it joins; older ones are dropped.
    """

    def __init__(self, max_episodes: Count = 2048, max_tokens: Count = 1_000_000, max_age: Count = 10) -> None:
        self.max_episodes, self.max_tokens, self.max_age = max_episodes, max_tokens, max_age
        self.seed = 0
        """Of the run; `start` sets it."""

    def start(self, seed: int) -> None:
        """Called once, before anything else."""
        self.seed = seed

    def worth(self, episode: RecordedEpisode) -> float:
        """How much the episode is worth storing: one of 0 or less is not. Here how far its advantage is from that of equals."""
        size = abs(episode.advantage - episode.of_equals)
        return size if size > NO_ADVANTAGE else 0.0

    def observe(self, rollout: RecordedRollout) -> None:
        """Learn from a rollout that is over."""

    @abstractmethod
    def choose(
        self, stored: Sequence[RecordedEpisode], rollout: RecordedRollout
    ) -> Sequence[Sequence[ReplayedEpisode]]:
        """For each of `rollout.updates`, the stored episodes that join it, none of them twice."""

    def metrics(self) -> Mapping[str, float]:
        """Further figures, logged with every update as `replay/NAME`."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What `observe` has changed, in plain containers; a part of every checkpoint."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state."""


def drawn(items: Sequence[T], weights: Sequence[float], count: int, seed: int) -> list[T]:
    """Up to `count` different items, one after the other with probabilities in proportion to the weights, those of weight 0 last.

    Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006): the largest log(u) / weight.

    >>> drawn("abc", [1.0, 1.0, 1e9], 1, seed=0)
    ['c']
    """
    rng = random.Random(seed)
    keys = [math.log(1 - rng.random()) / weight if weight else -math.inf for weight in weights]
    order = sorted(range(len(items)), key=lambda i: (-keys[i], i))
    return [items[i] for i in order[:count]]
