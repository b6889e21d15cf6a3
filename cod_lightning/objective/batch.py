"""Tensors made of experience: the credit table of a rollout, and the token rows of one optimizer update.

Letters: G packs, K siblings, N tasks, E episodes in the order of the lifecycle's plan, B rows, T tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
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
    """Raw rewards of a whole rollout; advantages are derived from it, never shipped."""

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

    def to(self, device: torch.device | str) -> "CreditTable":
        return _moved(self, device)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Right-padded token rows of one optimizer update, and the credit table of the rollout they come from."""

    token_ids: Int[Tensor, "B T"]
    action_mask: Bool[Tensor, "B T"]
    """True exactly where the policy sampled the token."""
    behaviour_logprobs: Float[Tensor, "B T"]
    """[:, t] belongs to token_ids[:, t] (nats); 0 where the mask is False."""
    episode_index: Int[Tensor, "B 3"]
    """(g, k, e) of each row in the credit table; of a row of an attempt, that of the episode beside it."""
    attempt: Int[Tensor, " B"]
    """Row of the credit table's attempts; -1 in rows of a lifecycle's own episodes."""
    policy_version: Int[Tensor, " B"]
    lengths: Int[Tensor, " B"]
    """Tokens of each row, padding excluded."""
    credit: CreditTable
    num_action_tokens: int
    """Action tokens of these rows, those of zero advantage included: this rank's part of the loss denominator."""
    pack_ids: Mapping[int, str] = field(default_factory=dict)
    """g -> name of the pack, for those that may look into the rows of one; the objective needs none."""
    old_logprobs: Float[Tensor, "B T"] | None = None
    """By the training forward with the weights that sampled (nats), where they were computed."""

    scores: Mapping[str, Float[Tensor, "B T"]] = field(default_factory=dict)
    """Log-probs under other models (nats), by the name of the scorer; NaN where one gave none."""
    given: Float[Tensor, " B"] | None = None
    """Advantage that a replayed row brings along, NaN in rows of this rollout; None where nothing is replayed. The (g, k, e) of a
    replayed row are in no credit table: g counts on from G, one for each pack in each update that it joins."""

    def __post_init__(self) -> None:
        rows, width = self.token_ids.shape
        _check_shapes(self, action_mask=(rows, width), behaviour_logprobs=(rows, width), episode_index=(rows, 3))
        _check_shapes(self, attempt=(rows,), policy_version=(rows,), lengths=(rows,))

    def __len__(self) -> int:
        return self.token_ids.shape[0]

    @property
    def kinds(self) -> Int[Tensor, " B"]:
        """Kind of each row's episode, as in the credit table; of a replayed one, too, which has a place in the same plan."""
        return self.credit.kinds[self.episode_index[:, 2]]

    @property
    def is_replayed(self) -> Bool[Tensor, " B"]:
        """Which rows are those of earlier rollouts."""
        return torch.zeros_like(self.attempt).bool() if self.given is None else self.given.isfinite()

    def to(self, device: torch.device | str) -> "Batch":
        return _moved(self, device)

    def of_packs(self, packs: Sequence[int]) -> "Batch":
        """The update made of these packs, each by its g in the credit table: their rows, and the denominator of those."""
        chosen = torch.isin(self.episode_index[:, 0], torch.tensor(packs, device=self.episode_index.device))
        part = self.rows(chosen.nonzero().squeeze(1))
        return replace(part, num_action_tokens=int(part.action_mask.sum()))

    def rows(self, index: Int[Tensor, " b"]) -> "Batch":
        """The chosen rows, as wide as the longest of them; the denominator stays that of the whole update."""
        width = int(self.lengths[index].max()) if len(index) else 0
        return replace(
            self,
            token_ids=self.token_ids[index, :width],
            action_mask=self.action_mask[index, :width],
            behaviour_logprobs=self.behaviour_logprobs[index, :width],
            episode_index=self.episode_index[index],
            attempt=self.attempt[index],
            policy_version=self.policy_version[index],
            lengths=self.lengths[index],
            old_logprobs=None if self.old_logprobs is None else self.old_logprobs[index, :width],
            scores={name: values[index, :width] for name, values in self.scores.items()},
            given=None if self.given is None else self.given[index],
        )


def one_token(like: Batch) -> Batch:
    """A batch with one action token, for a rank that has no rows but has to go through the model with the others."""
    zero = like.token_ids.new_zeros
    return replace(
        like,
        token_ids=zero(1, 2),
        action_mask=torch.tensor([[False, True]], device=like.token_ids.device),
        behaviour_logprobs=like.behaviour_logprobs.new_zeros(1, 2),
        episode_index=zero(1, 3),
        policy_version=zero(1),
        attempt=zero(1) - 1,
        lengths=zero(1) + 2,
        old_logprobs=None,
        scores={name: values.new_zeros(1, 2) for name, values in like.scores.items()},
        given=None,
    )


def _check_shapes(record: Any, **shapes: tuple[int, ...]) -> None:
    for name, shape in shapes.items():
        found = tuple(getattr(record, name).shape)
        assert found == shape, f"{name} of a {type(record).__name__} is {found}, not {shape}"


def _moved(record: Any, device: torch.device | str) -> Any:
    """The record on another device, records in it too."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    moved: dict[str, Any] = {name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)}
    moved |= {name: _moved(value, device) for name, value in values.items() if is_dataclass(value)}
    if scores := values.get("scores"):
        moved["scores"] = {name: value.to(device) for name, value in scores.items()}
    return replace(record, **moved)


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


def collate(segments: Sequence[Segment], credit: CreditTable, pack_index: Mapping[str, int], pad_id: int) -> Batch:
    """Rows of one update. `pack_index` gives each pack's g in the credit table; rows are right-padded with `pad_id`."""
    lengths = torch.tensor([len(s.token_ids) for s in segments], dtype=torch.long)
    width = int(lengths.max()) if len(segments) else 0
    inside = torch.arange(width) < lengths[:, None]

    def padded(rows: Sequence[Sequence[Any]], fill: float | bool, dtype: DTypeLike) -> Tensor:
        values = torch.from_numpy(np.fromiter(chain.from_iterable(rows), dtype))
        out = torch.full((len(rows), width), fill, dtype=values.dtype)
        out[inside] = values
        return out

    first: dict[tuple[int, int], int] = {}  # row of the first attempt of each lifecycle
    for x, (g, k, _) in enumerate(credit.attempts.of.tolist()):
        first.setdefault((g, k), x)
    attempt = [-1 if s.attempt is None else first[pack_index[s.pack_id], s.sibling] + s.attempt for s in segments]
    action_mask = padded([s.action_mask for s in segments], False, np.bool_)
    return Batch(
        token_ids=padded([s.token_ids for s in segments], pad_id, np.int64),
        action_mask=action_mask,
        behaviour_logprobs=padded([s.behaviour_logprobs for s in segments], 0.0, np.float32),
        episode_index=torch.tensor(
            [(pack_index[s.pack_id], s.sibling, s.episode) for s in segments], dtype=torch.long
        ).view(-1, 3),
        attempt=torch.tensor(attempt, dtype=torch.long),
        policy_version=torch.tensor([s.policy_version for s in segments], dtype=torch.long),
        lengths=lengths,
        credit=credit,
        num_action_tokens=int(action_mask.sum()),
        pack_ids={pack_index[s.pack_id]: s.pack_id for s in segments},
    )


def episode_keys(batch: Batch) -> Int[Tensor, " B"]:
    """One integer for each row's episode, from its (g, k, e); attempts count on from there, and replayed episodes from those."""
    packs, siblings, episodes = batch.credit.valid.shape
    g, k, e = batch.episode_index.unbind(dim=1)
    own, num_own = (g * siblings + k) * episodes + e, batch.credit.valid.numel()
    keys = torch.where(batch.attempt < 0, own, num_own + batch.attempt)
    replayed = batch.is_replayed
    if not bool(replayed.any()):
        return keys
    most, longest = int(k[replayed].max()) + 1, int(e[replayed].max()) + 1  # their packs may have been larger
    behind = num_own + len(batch.credit.attempts.rewards) + ((g - packs) * most + k) * longest + e
    return torch.where(replayed, behind, keys)


def sibling_keys(batch: Batch) -> Int[Tensor, " B"]:
    """One integer for what a row's episode is compared with: its siblings at its pack and place in the plan.

    Where a solve episode has attempts from its snapshot that count, these and it are compared with each other, and their key is
    below 0: the siblings began with other contexts.
    """
    _, siblings, episodes = batch.credit.valid.shape
    g, k, e = batch.episode_index.unbind(dim=1)
    attempts = batch.credit.attempts
    counts = attempts.of[attempts.same_context & attempts.valid]
    anchored = torch.zeros_like(batch.credit.valid).index_put(tuple(counts.unbind(dim=1)), counts.new_ones(()).bool())
    places = batch.episode_index.masked_fill(batch.is_replayed[:, None], 0).unbind(dim=1)
    alone = anchored[places] & ~batch.is_replayed
    return torch.where(alone, -1 - ((g * siblings + k) * episodes + e), g * episodes + e)
