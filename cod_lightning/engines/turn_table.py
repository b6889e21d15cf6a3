"""The turns that an engine is sampling, in columns with a row for every slot: a token takes no Python of its own."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.engines.base import Request
from cod_lightning.engines.noise import sample, uniforms

Slots = Int[np.ndarray, " b"]


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
        self._top_p = np.zeros(0, np.float32)
        self.may_end = np.zeros(0, bool)
        """Whether a string ends the turn."""
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
        self._top_p[slots] = [request.top_p for request in requests]
        self.may_end[slots] = [request.ends is not None for request in requests]

    def next_inputs(self, slots: Slots) -> tuple[Int[np.ndarray, " b"], Int[np.ndarray, " b"]]:
        """The ids to feed next, the last ones sampled, and the columns of the cache that they go to."""
        last = self._num_sampled[slots] - 1
        return self._ids[slots, last], self._prompt[slots] + last

    def sample(self, slots: Slots, logits: Float[Tensor, "b V"]) -> None:
        """One more token for each of these turns."""
        num = self._num_sampled[slots]
        noise = uniforms(self._seed[slots], num)
        ids, logprobs = sample(logits, self._temperature[slots], self._top_p[slots], noise)
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
