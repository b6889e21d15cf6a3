"""Rows of an update into micro-batches that fit a budget of padded tokens."""

from collections.abc import Sequence
from itertools import groupby

import torch
from jaxtyping import Int
from torch import Tensor


def split_by_token_budget(lengths: Int[Tensor, " B"], keys: Int[Tensor, " B"], budget: int) -> list[Int[Tensor, " b"]]:
    """Row indices of each micro-batch: rows * longest row <= budget, unless one episode alone is larger.

    Rows are ordered by the length of their episode's longest row, so that little is padding, and where short rows end and long ones
    begin a micro-batch ends: at most a quarter of the budget is padding between episodes. Rows with the same key stay together,
    because sequence-level losses need a whole episode.

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
        if parts and together <= budget and together - room - len(episode) * width <= budget / 4:
            parts[-1] += episode
        else:
            parts.append(episode)
            room = 0
        room += len(episode) * width
    return [torch.tensor(part, dtype=torch.long, device=lengths.device) for part in parts]


def padded(parts: Sequence[Int[Tensor, " b"]], number: int) -> list[Int[Tensor, " b"] | None]:
    """The parts and as many empty ones (None) before them as make `number`: the last one, which ends the update, is real if any is.

    >>> padded([torch.tensor([4])], 2)
    [None, tensor([4])]
    """
    return [*[None] * (number - len(parts)), *parts]
