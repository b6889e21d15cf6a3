"""From hidden states to log-probabilities of the tokens that came next: the one place where the shift by one happens."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding
from torch.utils.checkpoint import checkpoint

_LARGE = 256 * 2**20
"""Bytes of all float32 scores from which on a backward pass computes them again rather than keep them."""
_CHUNK = 64 * 2**20
"""Bytes of a chunk's float32 scores where they are computed again; a forward holds about three such arrays, a backward four."""


def action_logprobs(
    hidden: Float[Tensor, "B T D"],
    output_layer: Callable[[Tensor], Tensor],
    token_ids: Int[Tensor, "B T"],
    action_mask: Bool[Tensor, "B T"],
    chunk: int | None = None,
    entropy_gradient: bool = False,
    recompute: bool | None = None,
    parent: Int[Tensor, " T"] | None = None,
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """Log-probability (nats) of each action token given the tokens before it, 0 elsewhere, and the entropy (nats) of its
    distribution, which has a gradient with `entropy_gradient` only.

    out[:, t] = log softmax(output_layer(hidden[:, t-1]))[token_ids[:, t]], or of hidden[:, parent[t]] where parents are named

    Logits are computed only where they predict an action token, `chunk` positions at a time, so that [B, T, V] never
    exists. With `recompute` a backward pass computes each chunk's scores again instead of keeping them: at most twice the
    output layer's time, memory of one chunk in place of [action tokens, V]. By default it is done where the scores would take
    256 MiB or more, in chunks of 64 MiB; smaller ones are kept.

    >>> hidden, ids = torch.zeros(1, 3, 4), torch.tensor([[0, 1, 2]])
    >>> action_logprobs(hidden, torch.nn.Identity(), ids, torch.tensor([[False, False, True]]))
    (tensor([[ 0.0000,  0.0000, -1.3863]]), tensor([[0.0000, 0.0000, 1.3863]]))
    """
    rows, columns = action_mask[:, 1:].nonzero(as_tuple=True) if parent is None else action_mask.nonzero(as_tuple=True)
    at = (rows, columns + 1 if parent is None else columns)
    # a parent has several children, and on several threads the gradient of an index adds up in any order
    predicting = hidden[rows, columns] if parent is None else embedding(parent[columns], hidden[0])
    targets = token_ids[at]
    if recompute is None:
        recompute = 4 * len(rows) * _num_scores(output_layer) >= _LARGE
    if chunk is None:
        chunk = max(16, _CHUNK // (4 * _num_scores(output_layer))) if recompute else 4096
    found = []
    for part, target in zip(predicting.split(chunk), targets.split(chunk), strict=True):
        if recompute and torch.is_grad_enabled():
            found.append(
                checkpoint(
                    _scored,
                    part,
                    target,
                    output_layer,
                    entropy_gradient,
                    use_reentrant=False,
                    preserve_rng_state=False,  # nothing is drawn
                )
            )
        else:
            found.append(_scored(part, target, output_layer, entropy_gradient))
    blank = torch.zeros(token_ids.shape, dtype=torch.float32, device=hidden.device)
    if not found:
        return blank + hidden.sum() * 0, blank
    logprobs, entropies = (torch.cat(values) for values in zip(*found, strict=True))
    return blank.index_put(at, logprobs), blank.index_put(at, entropies)


def _scored(
    hidden: Float[Tensor, "n D"],
    targets: Int[Tensor, " n"],
    output_layer: Callable[[Tensor], Tensor],
    entropy_gradient: bool,
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Log-probabilities of the targets and entropies of the distributions."""
    scores = torch.log_softmax(output_layer(hidden).float(), dim=-1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropies = -(scores.exp() * scores.masked_fill(scores == -torch.inf, 0.0)).sum(dim=-1)
    return scores.gather(1, targets[:, None]).squeeze(1), entropies


def scores_bytes(num_tokens: int, vocabulary: int) -> int:
    """About what the scores of that many action tokens take at most: three arrays that are kept, or four of a chunk.

    >>> scores_bytes(100, 1000), scores_bytes(4096, 151_936) / 2**20
    (1200000, 256.0)
    """
    own = 4 * num_tokens * vocabulary
    return 4 * _CHUNK if own >= _LARGE else 3 * own


def _num_scores(output_layer: Callable[[Tensor], Tensor]) -> int:
    """The layer's vocabulary; 1, which is small, where it has no weight to tell by."""
    weight = getattr(output_layer, "weight", None)
    return int(weight.shape[0]) if isinstance(weight, Tensor) and weight.ndim == 2 else 1
