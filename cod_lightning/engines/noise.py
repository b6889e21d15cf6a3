"""Sampling noise as a value: the uniform number behind every token is a function of the turn's seed and the token's index.

So a sample does not depend on the batch it was drawn in, on the number of ranks, or on what was drawn before.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seeds: np.ndarray, counters: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1), one for each (seed, counter): SplitMix64, 53 bits.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.

    >>> a = uniforms(np.array([7, 7], np.uint64), np.array([0, 1], np.uint64))
    >>> bool(a[0] != a[1]), bool(((a >= 0) & (a < 1)).all())
    (True, True)
    """
    with np.errstate(over="ignore"):
        z = seeds.astype(np.uint64) + (counters.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample(
    logits: Float[Tensor, "B V"],
    temperature: Float[Tensor, " B"],
    top_p: Float[Tensor, " B"],
    noise: Float[Tensor, " B"],
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """Token ids by inverse CDF, and their log-probabilities (nats) under the distribution they were drawn from.

    Temperature 0 is greedy, and its log-probability is then that of the untempered distribution, since a point mass
    has none worth reporting. top_p below 1 keeps the smallest set of most likely tokens whose mass reaches it.
    """
    greedy = temperature == 0
    scaled = logits.float() / torch.where(greedy, 1.0, temperature)[:, None]
    logprobs = torch.log_softmax(scaled, dim=-1)
    if bool((top_p < 1).any()):
        logprobs = torch.log_softmax(_keep_nucleus(logprobs, top_p), dim=-1)
    cdf = logprobs.double().exp().cumsum(dim=-1)
    ids = torch.searchsorted(cdf, (noise.to(cdf) * cdf[:, -1])[:, None], right=True).squeeze(1)
    ids = ids.clamp_max(logits.shape[-1] - 1)
    if bool(greedy.any()):
        ids = torch.where(greedy, logprobs.argmax(dim=-1), ids)
    return ids, logprobs.gather(1, ids[:, None]).squeeze(1)


def _keep_nucleus(logprobs: Float[Tensor, "B V"], top_p: Float[Tensor, " B"]) -> Float[Tensor, "B V"]:
    """The log-probabilities with everything outside the nucleus at -inf."""
    ordered, order = logprobs.sort(dim=-1, descending=True)
    mass_before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    dropped = torch.zeros_like(logprobs, dtype=torch.bool).scatter(1, order, mass_before >= top_p[:, None])
    return logprobs.masked_fill(dropped, -torch.inf)
