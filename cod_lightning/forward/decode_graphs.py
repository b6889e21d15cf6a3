"""One token for every dialogue in flight, recorded once as a CUDA graph and replayed: a small model's decoding is all launches.

A pass of 135 million parameters takes some thousand kernels of a few microseconds each, and starting them from Python takes longer
than running them. A graph is made for a number of slots and a number of columns, both rounded up, so that few serve a whole
training. Slots without a turn in flight take part: what they write goes to the cache's last column, which no dialogue uses.

The same body runs without a graph on a CPU, where tests hold it to the packed pass.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from cod_lightning.forward.slots import SlotCache

_SIZES = tuple(sorted({2**n for n in range(3, 21)} | {3 * 2**n for n in range(4, 20)}))
"""What slots and columns are rounded up to: 8, 16, 32, 48, 64, 96, 128 and so on."""
_FEWEST_COLUMNS = 128
Body = Callable[[Int[Tensor, " S"], Int[Tensor, " S"], int, SlotCache], Float[Tensor, "S D"]]
"""Hidden states of slots 0 to S - 1 after each has taken one id at one column, of which the pass reads the first so many."""

log = logging.getLogger(__name__)


def rounded(number: int) -> int:
    """The smallest size of a graph that is at least this.

    >>> rounded(1), rounded(65), rounded(256), rounded(257)
    (8, 96, 256, 384)
    """
    return _SIZES[bisect_left(_SIZES, number)]


@dataclass
class _Recorded:
    """A graph with the tensors that it reads and writes."""

    inputs: Int[Tensor, "2 S"]
    """Ids and columns."""
    hidden: Float[Tensor, "S D"]
    graph: "torch.cuda.CUDAGraph"


@dataclass
class DecodeGraphs:
    """Runs a body by graphs where the cache is on a GPU; graphs of a cache that has grown since are dropped."""

    body: Body
    _recorded: dict[tuple[int, int], _Recorded] = field(default_factory=dict)
    _of: tuple[int, ...] = ()
    """How large the cache was and where it lay when the graphs were recorded."""
    _refused: bool = False

    def __call__(
        self, slots: Int[np.ndarray, " b"], columns: Int[np.ndarray, " b"], ids: Int[np.ndarray, " b"], cache: SlotCache
    ) -> Float[Tensor, "b D"]:
        """Hidden states of these slots, in their order, each after its id at its column; the cache has room for all of them."""
        num_slots = min(rounded(1 + int(slots.max())), cache.num_slots)
        num_columns = min(rounded(max(_FEWEST_COLUMNS, 1 + int(columns.max()))), cache.num_columns)
        inputs = np.zeros((2, num_slots), np.int64)
        inputs[1] = cache.num_columns - 1
        inputs[0, slots], inputs[1, slots] = ids, columns
        device = cache.device
        hidden = self._run(torch.from_numpy(inputs).to(device), num_columns, cache)
        return hidden.index_select(0, torch.from_numpy(slots).to(device))

    def _run(self, inputs: Int[Tensor, "2 S"], num_columns: int, cache: SlotCache) -> Float[Tensor, "S D"]:
        if inputs.device.type != "cuda" or self._refused:
            return self.body(inputs[0], inputs[1], num_columns, cache)
        if self._of != cache.places:
            self._recorded.clear()
            self._of = cache.places
        key = (inputs.shape[1], num_columns)
        if key not in self._recorded:
            hidden = self.body(
                inputs[0], inputs[1], num_columns, cache
            )  # libraries take their workspaces outside of a graph
            self._record(inputs, num_columns, cache)
            return hidden
        recorded = self._recorded[key]
        recorded.inputs.copy_(inputs)
        recorded.graph.replay()
        return recorded.hidden

    def _record(self, inputs: Int[Tensor, "2 S"], num_columns: int, cache: SlotCache) -> None:
        torch.cuda.synchronize(inputs.device)
        graph, inputs = torch.cuda.CUDAGraph(), inputs.clone()
        pool = next(iter(self._recorded.values())).graph.pool() if self._recorded else None
        try:
            # training may go on in another thread, whose calls are none of the recording's
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                hidden = self.body(inputs[0], inputs[1], num_columns, cache)
        except RuntimeError as error:  # a layer that asks the device something cannot be recorded
            self._refused = True
            log.warning("Decoding goes on without CUDA graphs: %s", str(error).splitlines()[0])
            return
        self._recorded[(inputs.shape[1], num_columns)] = _Recorded(inputs, hidden, graph)
