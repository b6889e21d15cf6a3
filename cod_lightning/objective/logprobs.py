"""From hidden states to log-probabilities of the tokens that came next: the one place where the shift by one happens."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def token_logprobs(logits: Float[Tensor, "B T V"], token_ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Log-probability (nats) of each token given those before it; 0 for the first, which nothing predicts.

    out[:, t] = log softmax(logits[:, t-1])[token_ids[:, t]]

    >>> token_logprobs(torch.zeros(1, 3, 4), torch.tensor([[0, 1, 2]]))
    tensor([[ 0.0000, -1.3863, -1.3863]])
    """
    scores = torch.log_softmax(logits[:, :-1].float(), dim=-1)
    chosen = scores.gather(2, token_ids[:, 1:, None]).squeeze(2)
    return torch.nn.functional.pad(chosen, (1, 0))


def action_logprobs(
    hidden: Float[Tensor, "B T D"],
    output_layer: Callable[[Tensor], Tensor],
    token_ids: Int[Tensor, "B T"],
    action_mask: Bool[Tensor, "B T"],
    chunk: int = 4096,
    entropy_gradient: bool = False,
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """As `token_logprobs` at action tokens, 0 elsewhere, and the entropy (nats) of each one's distribution.

    The entropy has a gradient with `entropy_gradient` only, which keeps two more arrays of the size of the scores.

    Logits are computed only where they predict an action token, `chunk` positions at a time, so that [B, T, V] never
    exists. Autograd keeps each chunk's scores: with gradient, memory is that of [action tokens, V] in float32.

    >>> hidden, ids = torch.zeros(1, 3, 4), torch.tensor([[0, 1, 2]])
    >>> action_logprobs(hidden, torch.nn.Identity(), ids, torch.tensor([[False, False, True]]))
    (tensor([[ 0.0000,  0.0000, -1.3863]]), tensor([[0.0000, 0.0000, 1.3863]]))
    """
    rows, columns = action_mask[:, 1:].nonzero(as_tuple=True)
    predicting = hidden[rows, columns]
    targets = token_ids[rows, columns + 1]
    logprobs, entropies = [], []
    for part, target in zip(predicting.split(chunk), targets.split(chunk), strict=True):
        scores = torch.log_softmax(output_layer(part).float(), dim=-1)
        logprobs.append(scores.gather(1, target[:, None]).squeeze(1))
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropies.append(-(scores.exp() * scores.masked_fill(scores == -torch.inf, 0.0)).sum(dim=-1))
    at = (rows, columns + 1)
    blank = torch.zeros(token_ids.shape, dtype=torch.float32, device=hidden.device)
    if not logprobs:
        return blank + hidden.sum() * 0, blank
    return blank.index_put(at, torch.cat(logprobs)), blank.index_put(at, torch.cat(entropies))
