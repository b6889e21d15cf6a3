"""Token rows as tensors. Letters: B rows, T tokens."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import DTypeLike
from torch import Tensor

from cod_lightning.credit.table import EpisodeTable
from cod_lightning.types import Image, Segment


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
    returns: Float[Tensor, " B"] | None = None
    """Of a row's episode, for critics; NaN where a critic has no say, as in rows of extra attempts and of earlier rollouts."""
    by_token: Float[Tensor, "B T"] | None = None
    """Advantages of action tokens where a critic gives each its own, NaN where none is known; None: each has its row's."""
    episode: Int[Tensor, " B"]
    """Which episode a row is of: its entry in the rollout's `EpisodeTable`, for replayed ones a number after those."""
    siblings: Int[Tensor, " B"]
    """One number for the episodes that a loss which compares siblings compares with each other (`EpisodeTable.siblings`)."""
    kinds: Int[Tensor, " B"]
    """Kind of the episode, its place in `EpisodeKind`."""
    place: Int[Tensor, "B 3"]
    """(g, k, e) of the episode in its rollout (`EpisodeTable.place`). Of a replayed row g counts on from G, one for each pack in
    each update that it joins."""
    is_attempt: Bool[Tensor, " B"]
    """Which rows are of extra attempts, not of a lifecycle's own episodes."""
    is_replayed: Bool[Tensor, " B"]
    """Which rows are those of earlier rollouts."""
    images: Sequence[tuple[Image, ...]] = ()
    """[B] those shown within a row's tokens, which hold their alternatives; empty where no row has any."""
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
    rollouts_left: int = 0
    """Rollouts that come after this one and before the next weight sync."""

    def __post_init__(self) -> None:
        rows, width = self.token_ids.shape
        shapes = {"action_mask": (rows, width), "behaviour_logprobs": (rows, width), "place": (rows, 3)}
        for name, shape in (shapes | dict.fromkeys(_OF_ROWS, (rows,))).items():
            found = tuple(getattr(self, name).shape)
            assert found == shape, f"{name} of a batch is {found}, not {shape}"

    def __len__(self) -> int:
        return self.token_ids.shape[0]

    @property
    def inside(self) -> Bool[Tensor, "B T"]:
        """What is no padding."""
        return torch.arange(self.token_ids.shape[1], device=self.lengths.device) < self.lengths[:, None]

    @property
    def observation_mask(self) -> Bool[Tensor, "B T"]:
        """What came back from the environment or the context mechanism after the policy's first turn."""
        return (self.action_mask.cumsum(dim=1) > 0) & ~self.action_mask & self.inside

    @property
    def known(self) -> Bool[Tensor, "B T"]:
        """Action tokens whose advantage is known; the others are in no update and in no denominator."""
        return self.action_mask & self._advantages.isfinite()

    @property
    def token_advantages(self) -> Float[Tensor, "B T"]:
        """Every action token's own advantage or its row's, 0 where none is known; all other tokens get 0."""
        return torch.where(self.known, self._advantages, 0.0)

    @property
    def _advantages(self) -> Float[Tensor, "B _"]:
        """Of each token, or of its row, wherever they have a meaning."""
        return self.advantages[:, None] if self.by_token is None else self.by_token

    def to(self, device: torch.device | str) -> "Batch":
        return self.mapped(lambda wide: wide.to(device), lambda of_rows: of_rows.to(device))

    def mapped(self, wide: Callable[[Tensor], Tensor], of_rows: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with other values for each token, and for each row."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        changed = {name: (wide if name in _WIDE else of_rows)(value) for name, value in tensors.items()}
        return replace(self, **changed, scores={name: wide(values) for name, values in self.scores.items()})

    def of_episodes(self, entries: Sequence[int]) -> "Batch":
        """The rows of these episodes, each by its entry in the rollout's table."""
        chosen = torch.isin(self.episode, torch.tensor(entries, dtype=torch.long, device=self.episode.device))
        return self.rows(chosen.nonzero().squeeze(1))

    def rows(self, index: Int[Tensor, " b"]) -> "Batch":
        """The chosen rows, as wide as the longest of them."""
        width = int(self.lengths[index].max()) if len(index) else 0
        chosen = self.mapped(lambda wide: wide[index, :width], lambda of_rows: of_rows[index])
        return replace(chosen, images=[self.images[row] for row in index.tolist()]) if self.images else chosen


_OF_TOKENS = ("token_ids", "action_mask", "behaviour_logprobs")
_WIDE = (*_OF_TOKENS, "by_token", "old_logprobs")
_OF_ROWS = ("lengths", "policy_version", "advantages", "episode", "siblings", "kinds", "is_attempt", "is_replayed")


def concatenated(parts: Sequence[Batch]) -> Batch:
    """The rows of all parts, one part behind the other, each as wide as the longest; what is not of rows is the first one's."""
    first, width = parts[0], max(part.token_ids.shape[1] for part in parts)
    shown = any(part.images for part in parts)

    def stacked(rows: Sequence[Tensor]) -> Tensor:
        return torch.cat([torch.nn.functional.pad(row, (0, width - row.shape[1])) for row in rows])

    def joined(name: str) -> Tensor:
        return (stacked if name in _WIDE else torch.cat)([getattr(part, name) for part in parts])

    return replace(
        first,
        **{name: joined(name) for name, value in vars(first).items() if isinstance(value, Tensor)},
        scores={name: stacked([part.scores[name] for part in parts]) for name in first.scores},
        images=[own for part in parts for own in part.images or [()] * len(part)] if shown else (),
        pack_ids={g: name for part in parts for g, name in part.pack_ids.items()},
    )


def without_padding(batch: Batch) -> dict[str, Any]:
    """The batch in plain containers, as a checkpoint keeps it: the tokens of its rows, one row behind the other."""
    return vars(batch) | {name: getattr(batch, name)[batch.inside] for name in _OF_TOKENS}


def with_padding(kept: Mapping[str, Any]) -> Batch:
    """The batch again."""
    lengths: Tensor = kept["lengths"]
    inside = torch.arange(int(lengths.max())) < lengths[:, None]
    wide = {name: kept[name].new_zeros(inside.shape).masked_scatter(inside, kept[name]) for name in _OF_TOKENS}
    return Batch(**{**kept, **wide})


def one_token(like: Batch) -> Batch:
    """A batch with one action token, for a rank that has no rows but has to go through the model with the others."""
    zeros = like.mapped(lambda wide: wide.new_zeros(1, 2), lambda of_rows: of_rows.new_zeros(1, *of_rows.shape[1:]))
    mask = like.action_mask.new_tensor([[False, True]])
    return replace(zeros, lengths=like.lengths.new_tensor([2]), action_mask=mask, images=())


def collate(segments: Sequence[Segment], table: EpisodeTable, pack_index: Mapping[str, int], pad_id: int) -> Batch:
    """Rows, right-padded with `pad_id`, without advantages. `pack_index` gives each pack's g in the table."""
    lengths = torch.tensor([len(s.token_ids) for s in segments], dtype=torch.long)
    width = int(lengths.max()) if len(segments) else 0
    inside = torch.arange(width) < lengths[:, None]

    def padded(rows: Sequence[Sequence[Any]], fill: float | bool, dtype: DTypeLike) -> Tensor:
        values = torch.from_numpy(np.fromiter(chain.from_iterable(rows), dtype))
        out = torch.full((len(rows), width), fill, dtype=values.dtype)
        out[inside] = values
        return out

    numbers = [table.numbers[pack_index[s.pack_id], s.sibling, s.episode] for s in segments]
    episode = torch.tensor(numbers, dtype=torch.long)
    return Batch(
        token_ids=padded([s.token_ids for s in segments], pad_id, np.int64),
        action_mask=padded([s.action_mask for s in segments], False, np.bool_),
        behaviour_logprobs=padded([s.behaviour_logprobs for s in segments], 0.0, np.float32),
        lengths=lengths,
        policy_version=torch.tensor([s.policy_version for s in segments], dtype=torch.long),
        advantages=torch.full((len(segments),), math.nan),
        episode=episode,
        siblings=table.siblings[episode],
        kinds=table.kinds[episode],
        place=table.place[episode],
        is_attempt=table.parent[episode] >= 0,
        is_replayed=torch.zeros(len(segments), dtype=torch.bool),
        images=[s.images for s in segments] if any(s.images for s in segments) else (),
        pack_ids={pack_index[s.pack_id]: s.pack_id for s in segments},
    )
