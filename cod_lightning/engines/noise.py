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
    z = seeds.astype(np.uint64) + (counters.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample(
    logits: Float[Tensor, "B V"],
    temperature: Float[np.ndarray, " B"],
    top_p: Float[np.ndarray, " B"],
    noise: Float[np.ndarray, " B"],
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """Token ids by inverse CDF, and their log-probabilities (nats) under the distribution they were drawn from.

    Temperature 0 is greedy, and its log-probability is then that of the untempered distribution, since a point mass
    has none worth reporting. top_p below 1 keeps the smallest set of most likely tokens whose mass reaches it.
    """
    greedy, device = temperature == 0, logits.device
    scaled = logits.float()
    if (temperature != 1).any():
        scaled = scaled / torch.from_numpy(np.where(greedy, 1, temperature)).to(scaled)[:, None]
    logprobs = torch.log_softmax(scaled, dim=-1)
    if (top_p < 1).any():
        logprobs = torch.log_softmax(_keep_nucleus(logprobs, torch.from_numpy(top_p).to(device)), dim=-1)
    cdf = logprobs.double().exp_().cumsum(dim=-1)
    drawn = torch.from_numpy(noise).to(device)[:, None] * cdf[:, -1:]
    ids = torch.searchsorted(cdf, drawn, right=True).squeeze(1).clamp_max_(logits.shape[-1] - 1)
    if greedy.any():
        ids = torch.where(torch.from_numpy(greedy).to(device), logprobs.argmax(dim=-1), ids)
    return ids, logprobs.gather(1, ids[:, None]).squeeze(1)


def _keep_nucleus(logprobs: Float[Tensor, "B V"], top_p: Float[Tensor, " B"]) -> Float[Tensor, "B V"]:
    """The log-probabilities with everything outside the nucleus at -inf."""
    ordered, order = logprobs.sort(dim=-1, descending=True)
    mass_before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    dropped = torch.zeros_like(logprobs, dtype=torch.bool).scatter(1, order, mass_before >= top_p[:, None])
    return logprobs.masked_fill(dropped, -torch.inf)
