"""Log-probabilities of all tokens by the definition, which the chunked ones of action tokens are compared with."""

import torch
from torch import Tensor


def token_logprobs(logits: Tensor, token_ids: Tensor) -> Tensor:
    """out[:, t] = log softmax(logits[:, t-1])[token_ids[:, t]] (nats); 0 for the first, which nothing predicts."""
    scores = torch.log_softmax(logits[:, :-1].float(), dim=-1)
    chosen = scores.gather(2, token_ids[:, 1:, None]).squeeze(2)
    return torch.nn.functional.pad(chosen, (1, 0))
