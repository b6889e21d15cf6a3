"""Tensors made of experience: the rewards of a rollout, and its token rows.

Letters: G packs, K siblings, N tasks, E episodes in the order of the lifecycle's plan, B rows, T tokens.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import DTypeLike
from torch import Tensor

from cod_lightning.types import AttemptKind, EpisodeKind, Group, Segment


@dataclass(frozen=True, kw_only=True)
class AttemptTable:
    """Extra solve episodes, attempts from a snapshot: a row for each of X, in the order of group, lifecycle and attempt."""

    of: Int[Tensor, "X 3"]
    """(g, k, e) of the solve episode that began from the same state of the world, at the same task."""
    same_context: Bool[Tensor, " X"]
    """Whether the attempt had that episode's context too, and is trained on; the others only measure."""
    rewards: Float[Tensor, " X"]
    valid: Bool[Tensor, " X"]
    """True where there is a reward; a missing one is stored as 0 and must not be used."""
    action_counts: Int[Tensor, " X"]
    """Tokens that the policy sampled in the attempt."""

    def __post_init__(self) -> None:
        num = len(self.of)
        _check_shapes(self, of=(num, 3), same_context=(num,), rewards=(num,), valid=(num,), action_counts=(num,))


@dataclass(frozen=True, kw_only=True)
class CreditTable:
    """Raw rewards of a whole rollout, of all ranks."""

    rewards: Float[Tensor, "G K E"]
    """A missing reward is stored as 0 and must not be used; `known_rewards` leaves it out."""
    valid: Bool[Tensor, "G K E"]
    """True where the episode has a reward."""
    action_counts: Int[Tensor, "G K E"]
    """Tokens that the policy sampled in the episode."""
    kinds: Int[Tensor, " E"]
    """Kind of each episode in the order of the plan: its place in `EpisodeKind`, 0 for solve."""
    attempts: AttemptTable = field(default_factory=lambda: attempt_table([]))
    """Extra solve episodes, from snapshots of these lifecycles."""

    def __post_init__(self) -> None:
        shape = tuple(self.rewards.shape)
        _check_shapes(self, valid=shape, action_counts=shape, kinds=shape[2:])

    @property
    def known_rewards(self) -> Float[Tensor, "G K E"]:
        """Rewards, 0 where missing, whatever is stored there."""
        return torch.where(self.valid, self.rewards, 0.0)

    @property
    def solves(self) -> Bool[Tensor, " E"]:
        """Which episodes solve a task."""
        return self.kinds == kind_id(EpisodeKind.SOLVE)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Right-padded token rows, each with its advantage: all that an optimizer update sees."""

    token_ids: Int[Tensor, "B T"]
    action_mask: Bool[Tensor, "B T"]
    """True exactly where the policy sampled the token."""
    behaviour_logprobs: Float[Tensor, "B T"]
    """[:, t] belongs to token_ids[:, t] (nats); 0 where the mask is False."""
    lengths: Int[Tensor, " B"]
    """Tokens of each row, padding excluded."""
    policy_version: Int[Tensor, " B"]
    advantages: Float[Tensor, " B"]
    """Of all action tokens of a row; NaN where none is known, so that the row is in no update and in no denominator."""
    episode: Int[Tensor, " B"]
    """Which episode a row is of: one number for all its rows, on all ranks."""
    siblings: Int[Tensor, " B"]
    """Which episodes a row's episode is compared with: one number for a pack and a place in the plan."""
    kinds: Int[Tensor, " B"]
    """Kind of the episode, its place in `EpisodeKind`."""
    episode_index: Int[Tensor, "B 3"]
    """(g, k, e) of the episode in its rollout; of an attempt, that of the episode beside it. Of a replayed row g counts on from G,
    one for each pack in each update that it joins."""
    attempt: Int[Tensor, " B"]
    """Which of the rollout's attempts; -1 in rows of a lifecycle's own episodes."""
    is_replayed: Bool[Tensor, " B"]
    """Which rows are those of earlier rollouts."""
    pack_ids: Mapping[int, str] = field(default_factory=dict)
    """g -> name of the pack."""
    old_logprobs: Float[Tensor, "B T"] | None = None
    """Under the weights before the rollout's first update (nats), where they were computed."""
    scores: Mapping[str, Float[Tensor, "B T"]] = field(default_factory=dict)
    """Log-probs under other models (nats), by the name of the scorer; NaN where one gave none."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Of the whole rollout, by the names under which every update logs them."""
    updates_left: int = 0
    """Updates of the rollout that come after this one."""

    def __post_init__(self) -> None:
        rows, width = self.token_ids.shape
        _check_shapes(self, action_mask=(rows, width), behaviour_logprobs=(rows, width), episode_index=(rows, 3))
        _check_shapes(self, **dict.fromkeys(_OF_ROWS, (rows,)))

    def __len__(self) -> int:
        return self.token_ids.shape[0]

    @property
    def token_advantages(self) -> Float[Tensor, "B T"]:
        """Every action token gets its row's advantage, 0 where none is known; all other tokens get 0."""
        return self.advantages.nan_to_num(0.0)[:, None] * self.action_mask

    def to(self, device: torch.device | str) -> "Batch":
        moved = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **moved, scores={name: value.to(device) for name, value in self.scores.items()})

    def of_packs(self, packs: Sequence[int]) -> "Batch":
        """The rows of these packs, each by its g."""
        chosen = torch.isin(self.episode_index[:, 0], torch.tensor(packs, device=self.episode_index.device))
        return self.rows(chosen.nonzero().squeeze(1))

    def rows(self, index: Int[Tensor, " b"]) -> "Batch":
        """The chosen rows, as wide as the longest of them."""
        width = int(self.lengths[index].max()) if len(index) else 0
        wide = ("token_ids", "action_mask", "behaviour_logprobs")
        return replace(
            self,
            **{name: getattr(self, name)[index, :width] for name in wide},
            **{name: getattr(self, name)[index] for name in (*_OF_ROWS, "episode_index")},
            old_logprobs=None if self.old_logprobs is None else self.old_logprobs[index, :width],
            scores={name: values[index, :width] for name, values in self.scores.items()},
        )


_OF_ROWS = ("lengths", "policy_version", "advantages", "episode", "siblings", "kinds", "attempt", "is_replayed")


def one_token(like: Batch) -> Batch:
    """A batch with one action token, for a rank that has no rows but has to go through the model with the others."""
    of_one = {name: getattr(like, name).new_zeros(1) for name in _OF_ROWS} | {"lengths": like.lengths.new_tensor([2])}
    return replace(
        like,
        **of_one,
        token_ids=like.token_ids.new_zeros(1, 2),
        action_mask=like.action_mask.new_tensor([[False, True]]),
        behaviour_logprobs=like.behaviour_logprobs.new_zeros(1, 2),
        episode_index=like.episode_index.new_zeros(1, 3),
        old_logprobs=None,
        scores={name: values.new_zeros(1, 2) for name, values in like.scores.items()},
    )


def _check_shapes(record: Any, **shapes: tuple[int, ...]) -> None:
    for name, shape in shapes.items():
        found = tuple(getattr(record, name).shape)
        assert found == shape, f"{name} of a {type(record).__name__} is {found}, not {shape}"


def kind_id(kind: EpisodeKind) -> int:
    """The kind as a number in tensors.

    >>> kind_id(EpisodeKind.SOLVE), kind_id(EpisodeKind.UPDATE)
    (0, 1)
    """
    return list(EpisodeKind).index(kind)


def credit_table(groups: Sequence[Group]) -> CreditTable:
    """The table of a rollout, in the order of the groups. All packs have the same plan and all groups the same K."""
    episodes = [[lifecycle.episodes for lifecycle in group.lifecycles] for group in groups]
    plans = {(len(lives), tuple((e.kind, e.position) for e in life)) for lives in episodes for life in lives}
    assert len(plans) == 1, f"one table needs equal siblings and plans everywhere; found {sorted(plans)}"
    rewards = [[[e.reward or 0.0 for e in life] for life in lives] for lives in episodes]
    return CreditTable(
        rewards=torch.tensor(rewards, dtype=torch.float32),
        valid=torch.tensor([[[e.reward is not None for e in life] for life in lives] for lives in episodes]),
        action_counts=torch.tensor([[[e.num_action_tokens for e in life] for life in lives] for lives in episodes]),
        kinds=torch.tensor([kind_id(kind) for kind, _ in plans.pop()[1]]),
        attempts=attempt_table(groups),
    )


def attempt_table(groups: Sequence[Group]) -> AttemptTable:
    """The attempts of a rollout; without any, a table of no rows."""
    rows = [
        (g, k, lifecycle.index(attempt.episode.kind, attempt.episode.position), attempt)
        for g, group in enumerate(groups)
        for k, lifecycle in enumerate(group.lifecycles)
        for attempt in lifecycle.attempts
    ]
    episodes = [attempt.episode for *_, attempt in rows]
    return AttemptTable(
        of=torch.tensor([place for *place, _ in rows], dtype=torch.long).view(-1, 3),
        same_context=torch.tensor([a.kind is AttemptKind.SAME_CONTEXT for *_, a in rows], dtype=torch.bool),
        rewards=torch.tensor([e.reward or 0.0 for e in episodes], dtype=torch.float32),
        valid=torch.tensor([e.reward is not None for e in episodes], dtype=torch.bool),
        action_counts=torch.tensor([e.num_action_tokens for e in episodes], dtype=torch.long),
    )


def collate(segments: Sequence[Segment], table: CreditTable, pack_index: Mapping[str, int], pad_id: int) -> Batch:
    """Rows without advantages (`Credited.stamped`). `pack_index` gives each pack's g in the table; right-padded with `pad_id`."""
    lengths = torch.tensor([len(s.token_ids) for s in segments], dtype=torch.long)
    width = int(lengths.max()) if len(segments) else 0
    inside = torch.arange(width) < lengths[:, None]

    def padded(rows: Sequence[Sequence[Any]], fill: float | bool, dtype: DTypeLike) -> Tensor:
        values = torch.from_numpy(np.fromiter(chain.from_iterable(rows), dtype))
        out = torch.full((len(rows), width), fill, dtype=values.dtype)
        out[inside] = values
        return out

    first: dict[tuple[int, int], int] = {}  # row of the first attempt of each lifecycle
    for x, (g, k, _) in enumerate(table.attempts.of.tolist()):
        first.setdefault((g, k), x)
    extra = [-1 if s.attempt is None else first[pack_index[s.pack_id], s.sibling] + s.attempt for s in segments]
    attempt = torch.tensor(extra, dtype=torch.long)
    index = torch.tensor([(pack_index[s.pack_id], s.sibling, s.episode) for s in segments], dtype=torch.long).view(
        -1, 3
    )
    g, k, e = index.unbind(dim=1)
    _, num_siblings, num_episodes = table.valid.shape
    return Batch(
        token_ids=padded([s.token_ids for s in segments], pad_id, np.int64),
        action_mask=padded([s.action_mask for s in segments], False, np.bool_),
        behaviour_logprobs=padded([s.behaviour_logprobs for s in segments], 0.0, np.float32),
        lengths=lengths,
        policy_version=torch.tensor([s.policy_version for s in segments], dtype=torch.long),
        advantages=torch.full((len(segments),), math.nan),
        episode=torch.where(attempt < 0, (g * num_siblings + k) * num_episodes + e, table.valid.numel() + attempt),
        siblings=g * num_episodes + e,
        kinds=table.kinds[e],
        episode_index=index,
        attempt=attempt,
        is_replayed=torch.zeros(len(segments), dtype=torch.bool),
        pack_ids={pack_index[s.pack_id]: s.pack_id for s in segments},
    )
