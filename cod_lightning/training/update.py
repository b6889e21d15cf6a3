"""One optimizer update: its rows and denominators, micro-batches that fit a budget, and what it adds up to."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Int
from torch import Tensor

from cod_lightning.credit.credited import NO_ADVANTAGE
from cod_lightning.objective.batch import Batch
from cod_lightning.objective.losses import PolicyLoss
from cod_lightning.ranks import gathered

MOST_PADDING = 4096
"""Tokens of padding between the episodes of a micro-batch, where padding is computed."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """This rank's part in one optimizer update, planned before any forward pass."""

    rows: Int[Tensor, " b"]
    """Rows that may have a gradient; the others are not looked at."""
    together: Int[Tensor, " B"]
    """Of each row, what a micro-batch must not be cut within."""
    num_action_tokens: int
    """Denominator, over all ranks: action tokens, those of zero advantage included, of rows without a known one not."""
    num_episodes: int
    """The other denominator: episodes of all ranks with a row, counted likewise."""


def plan_update(batch: Batch, loss: PolicyLoss, *, every_row: bool) -> Update:
    """Choose rows and count denominators.

    An episode whose advantage is not known, because a reward is missing or too few siblings have theirs, is not one with an
    advantage of 0: it is in no row and in no denominator, as if it had not been sampled. Of the others, rows of zero advantage
    count and are skipped unless `every_row` is set because some term of the objective (a divergence, an entropy bonus) has a
    gradient there too. An episode's rows are all on one rank.
    """
    mask = batch.known
    there = mask.any(dim=1)
    counts = gathered((int(mask.sum()), len(torch.unique(batch.episode[there]))))
    needed = batch.token_advantages.abs().gt(NO_ADVANTAGE).any(dim=1) | every_row
    # a loss takes an episode's ratio of all of its rows
    needed = torch.isin(batch.episode, batch.episode[needed])
    return Update(
        rows=(needed & there).nonzero().squeeze(1),
        together=batch.siblings if loss.compares_siblings else batch.episode,
        num_action_tokens=sum(tokens for tokens, _ in counts),
        num_episodes=sum(episodes for _, episodes in counts),
    )


def split_by_token_budget(
    lengths: Int[Tensor, " B"], keys: Int[Tensor, " B"], budget: int, most_padding: int = MOST_PADDING
) -> list[Int[Tensor, " b"]]:
    """Row indices of each micro-batch: rows * longest row <= budget, unless one episode alone is larger.

    Rows are ordered by the length of their episode's longest row, so that little is padding, and where short rows end and long ones
    begin a micro-batch ends: at most a quarter of the budget, and no more than `most_padding` tokens, is padding between episodes.
    On a CPU a further pass costs less than 4,096 of them. Rows with the same key stay together, because sequence-level losses need
    a whole episode.

    >>> [part.tolist() for part in split_by_token_budget(torch.tensor([2, 9, 3, 8]), torch.tensor([0, 1, 2, 3]), 18)]
    [[0, 2], [3, 1]]
    >>> [part.tolist() for part in split_by_token_budget(torch.tensor([2, 2, 2, 9]), torch.arange(4), 72)]
    [[0, 1, 2], [3]]
    """
    episodes = keys.tolist()
    widths: dict[int, int] = {}
    for key, length in zip(episodes, lengths.tolist(), strict=True):
        widths[key] = max(widths.get(key, 0), length)
    order = sorted(range(len(episodes)), key=lambda i: (widths[episodes[i]], episodes[i], i))
    parts: list[list[int]] = []
    room = 0  # that the episodes of the last part take, each as wide as its longest row
    for key, rows in groupby(order, key=episodes.__getitem__):
        episode, width = list(rows), widths[key]
        together = (len(parts[-1]) + len(episode)) * width if parts else 0
        if parts and together <= budget and together - room - len(episode) * width <= min(budget / 4, most_padding):
            parts[-1] += episode
        else:
            parts.append(episode)
            room = 0
        room += len(episode) * width
    return [torch.tensor(part, dtype=torch.long, device=lengths.device) for part in parts]


def padded(parts: Sequence[Int[Tensor, " b"]]) -> list[Int[Tensor, " b"] | None]:
    """This rank's parts and, before them, empty ones (None): every rank gets as many as the one with most.

    The last one, which ends an update, is real if any is.
    """
    return [*[None] * (max(gathered(len(parts))) - len(parts)), *parts]


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What an optimizer update was made of, on this rank."""

    num_tokens: int
    """Tokens that went through forward and backward, padding excluded."""
    num_rows: int
    """Without those of zero advantage, which need no gradient, and those of filtered packs."""
    num_micro_batches: int
    """Passes forward and backward, the same on every rank; one with fewer of its own goes through empty ones."""


Sums = dict[str, dict[str, float]]
"""Of micro-batches: those of the update, of its terms and of its mismatch, by name; of the mismatch's `max_gap` the largest."""


def added(one: Sums, other: Sums) -> Sums:
    """Sums of both together; a term may have any name.

    >>> added({"mismatch": {"gap": 1.0, "max_gap": 2.0}}, {"mismatch": {"gap": 3.0, "max_gap": 1.0}, "terms": {}})
    {'mismatch': {'gap': 4.0, 'max_gap': 2.0}, 'terms': {}}
    >>> added({"terms": {"max_gap": 2.0}}, {"terms": {"max_gap": 1.0}})
    {'terms': {'max_gap': 3.0}}
    """
    found: Sums = {}
    for of in one | other:
        a, b = one.get(of, {}), other.get(of, {})
        both = {name: (a.get(name, 0.0), b.get(name, 0.0)) for name in a | b}
        largest = {"max_gap"} if of == "mismatch" else ()
        found[of] = {name: max(pair) if name in largest else sum(pair) for name, pair in both.items()}
    return found
