"""The turns that an engine is sampling, in columns with a row for every slot: a token takes no Python of its own.

Sampling noise is a value: the uniform number behind every token is a function of the turn's seed and the token's index. So a
sample does not depend on the batch it was drawn in, on the number of ranks, or on what was drawn before.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.engines.base import Request

Slots = Int[np.ndarray, " b"]
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
    noise: Float[np.ndarray, " B"],
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """Token ids by inverse CDF, and their log-probabilities (nats) under the distribution they were drawn from.

    Temperature 0 is greedy, and its log-probability is then that of the untempered distribution, since a point mass
    has none worth reporting.
    """
    greedy, device = temperature == 0, logits.device
    scaled = logits.float()
    if (temperature != 1).any():
        scaled = scaled / torch.from_numpy(np.where(greedy, 1, temperature)).to(scaled)[:, None]
    logprobs = torch.log_softmax(scaled, dim=-1)
    cdf = logprobs.double().exp_().cumsum(dim=-1)
    drawn = torch.from_numpy(noise).to(device)[:, None] * cdf[:, -1:]
    ids = torch.searchsorted(cdf, drawn, right=True).squeeze(1).clamp_max_(logits.shape[-1] - 1)
    if greedy.any():
        ids = torch.where(torch.from_numpy(greedy).to(device), logprobs.argmax(dim=-1), ids)
    return ids, logprobs.gather(1, ids[:, None]).squeeze(1)


class TurnTable:
    """What each slot's turn asks for, and its tokens so far; rows and columns grow on demand."""

    def __init__(self, stop_ids: Iterable[int] = ()) -> None:
        self._stop_ids = sorted(stop_ids)
        self._prompt = np.zeros(0, np.int64)
        """Tokens of the prompt."""
        self._num_sampled = np.zeros(0, np.int64)
        """Tokens sampled."""
        self._most = np.zeros(0, np.int64)
        self._seed = np.zeros(0, np.uint64)
        self._temperature = np.zeros(0, np.float32)
        self._ids = np.zeros((0, 0), np.int64)
        self._logprobs = np.zeros((0, 0), np.float32)

    def begin(self, slots: Slots, requests: Sequence[Request]) -> None:
        """A turn in each of these slots, with no token sampled yet."""
        most = [request.max_new_tokens for request in requests]
        self._reserve(1 + int(slots.max()), max(most))
        self._prompt[slots] = [len(request.prompt_ids) for request in requests]
        self._num_sampled[slots], self._most[slots] = 0, most
        self._seed[slots] = np.array([request.noise_seed for request in requests], np.uint64)
        self._temperature[slots] = [request.temperature for request in requests]

    def next_inputs(self, slots: Slots) -> tuple[Int[np.ndarray, " b"], Int[np.ndarray, " b"]]:
        """The ids to feed next, the last ones sampled, and the columns of the cache that they go to."""
        last = self._num_sampled[slots] - 1
        return self._ids[slots, last], self._prompt[slots] + last

    def sample(self, slots: Slots, logits: Float[Tensor, "b V"]) -> None:
        """One more token for each of these turns."""
        num = self._num_sampled[slots]
        noise = uniforms(self._seed[slots], num)
        ids, logprobs = sample(logits, self._temperature[slots], noise)
        self._ids[slots, num], self._logprobs[slots, num] = ids.cpu().numpy(), logprobs.cpu().numpy()
        self._num_sampled[slots] = num + 1

    def over(self, slots: Slots) -> Bool[np.ndarray, " b"]:
        """Which of these turns have ended, by a stop token or at their limit."""
        num = self._num_sampled[slots]
        last = self._ids[slots, num - 1]
        over = num >= self._most[slots]
        for stop_id in self._stop_ids:
            over |= last == stop_id
        return over

    def sampled(self, slots: Slots) -> Iterator[tuple[tuple[int, ...], tuple[float, ...]]]:
        """Of each of these turns its ids so far and their log-probabilities."""
        nums = self._num_sampled[slots]
        most = nums.max(initial=0)
        every = zip(self._ids[slots, :most].tolist(), self._logprobs[slots, :most].tolist(), nums.tolist(), strict=True)
        for ids, logprobs, num in every:
            yield tuple(ids[:num]), tuple(logprobs[:num])

    def _reserve(self, num_slots: int, num_tokens: int) -> None:
        rows, columns = self._ids.shape
        if num_slots <= rows and num_tokens <= columns:
            return
        rows = max(num_slots, 2 * rows) if num_slots > rows else rows
        columns = max(num_tokens, columns)
        for name, array in [(n, a) for n, a in vars(self).items() if isinstance(a, np.ndarray)]:
            grown = np.zeros((rows, columns) if array.ndim == 2 else rows, array.dtype)
            grown[tuple(slice(length) for length in array.shape)] = array
            setattr(self, name, grown)
