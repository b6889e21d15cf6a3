"""Training rows as a tree: what several rows begin with goes through the model once.

Siblings are asked the same questions and see the same answers, and all rows of an environment begin with its rules: of a pack's
tokens a third or fewer may differ from all others in themselves or in what comes before them. A node is such a token, a row is a
path from a root. Layers work on each node by itself, [1, N], and nothing is computed for padding. Only attention looks at rows:
the nodes that a row adds have the queries, its whole path has the keys and values. Gradients of all rows flow back into the nodes
that they share, so that sums are the same but for the order in which they are rounded.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding
from transformers import PreTrainedModel

from cod_lightning.forward.attention import ROWS, is_grouped

_PAYS_SMALL, _PAYS_ON_A_CPU, _PAYS = 0.5, 0.9, 0.95
"""Most nodes that are worth it, as a share of the rows' places: for models narrower than `_SMALL` on a CPU, others there, on a GPU.
Lookups and further kernels take time, too (docs/results/speed.md)."""
_SMALL = 512
_KNOWN = "_cod_lightning_tree"
"""Attribute of a model: whether it takes rows as a tree."""
_ATTENDS = {"full_attention", "sliding_attention"}
NO_MASK = torch.ones((1, 1, 1, 1), dtype=torch.bool)
"""A mask that transformers hands on as it is; where rows are attended to in blocks, these have those that count."""
_ROOM_ON_A_CPU, _ROOM = 1.25, 2.0
"""Most scores of a block, as a multiple of those of its rows: on a GPU a further kernel costs more than some padding."""
ONE_BLOCK = 2**23
"""Most scores of a head in a block of several rows."""
MOST_ALIKE = 4
"""Most tokens of a micro-batch's rows for each node of its budget: attention has keys and values of them all."""

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Float[Tensor, "b w heads v"]]


def branches(rows: Sequence[Int[np.ndarray, " n"]]) -> tuple[list[int], list[int]]:
    """Rows in lexical order, and how many first ids each has in common with the one before it there.

    >>> branches([np.array([5, 6, 7]), np.array([5, 9]), np.array([5, 6])])
    ([2, 0, 1], [0, 2, 1])
    """
    keys = [row.astype(">u4").tobytes() for row in rows]
    order = sorted(range(len(rows)), key=keys.__getitem__)
    common = [0][: len(order)]
    for before, after in pairwise(order):
        num = min(len(rows[before]), len(rows[after]))
        unlike = (rows[before][:num] != rows[after][:num]).nonzero()[0]
        common.append(int(unlike[0]) if len(unlike) else num)
    return order, common


def split_by_nodes(
    token_ids: Int[Tensor, "B W"], lengths: Int[Tensor, " B"], keys: Int[Tensor, " B"], budget: int, most: float
) -> list[Int[Tensor, " b"]] | None:
    """Row indices of each micro-batch of at most `budget` nodes, unless what has one key is more.

    None where nodes are more than `most` of the tokens, a share.

    Rows that begin alike come side by side; rows with the same key stay together, and in the order of an episode's turns.
    """
    rows = [row[:end] for row, end in zip(token_ids.cpu().numpy(), lengths.tolist(), strict=True)]
    order, common = branches(rows)
    total = sum(map(len, rows))
    if total - sum(common) > most * total:
        return None
    at = {row: place for place, row in enumerate(order)}
    together: dict[int, list[int]] = {}
    for row in order:
        together.setdefault(int(keys[row]), []).append(row)
    parts: list[list[int]] = []
    chosen: list[int] = []  # places of the last part's rows in lexical order
    num_nodes = num_tokens = 0
    for some in together.values():
        places = [at[row] for row in some]
        further = _further(places, chosen, common, rows, order)
        size = sum(len(rows[row]) for row in some)
        if not parts or num_nodes + further > budget or num_tokens + size > MOST_ALIKE * budget:
            parts.append([])
            chosen, num_nodes, num_tokens = [], 0, 0
            further = _further(places, chosen, common, rows, order)
        parts[-1] += sorted(some)
        chosen, num_nodes, num_tokens = sorted([*chosen, *places]), num_nodes + further, num_tokens + size
    return [torch.tensor(part, dtype=torch.long, device=lengths.device) for part in parts]


def _further(
    places: Sequence[int],
    chosen: Sequence[int],
    common: Sequence[int],
    rows: Sequence[np.ndarray],
    order: Sequence[int],
) -> int:
    """Nodes that rows at these places of the lexical order add to those at the chosen ones."""
    known, num = list(chosen), 0
    for place in places:
        i = bisect_left(known, place)
        before = min(common[known[i - 1] + 1 : place + 1]) if i else 0
        after = min(common[place + 1 : known[i] + 1]) if i < len(known) else 0
        num += len(rows[order[place]]) - max(before, after)
        insort(known, place)
    return num


@dataclass(frozen=True)
class _Block:
    """Rows whose queries and paths attention takes as one rectangle."""

    queries: Int[Tensor, "b w"]
    """Nodes; a row that has fewer repeats its last one, and what is found there is not read."""
    read: Int[Tensor, " n"]
    """Which places of the rectangle are read."""
    path: Int[Tensor, "b C"]
    """Nodes from the root on; behind the row's end any."""
    depth: Int[Tensor, "b 1 w 1"]
    """Of the queries."""
    is_whole: bool
    """Whether queries are all of their paths."""

    def seen(self, window: int | None) -> Bool[Tensor, "b 1 w C"] | None:
        """What each query sees: the path up to itself, of that the last `window`; None for a causal square."""
        window = None if window is None or window >= self.path.shape[1] else window
        if self.is_whole and window is None:
            return None
        columns = torch.arange(self.path.shape[1], device=self.path.device)
        seen = columns <= self.depth
        return seen if window is None else seen & (columns > self.depth - window)


class RowTree:
    """The nodes of B right-padded rows, for a model that `takes_tree`, and what is wanted of them.

    Args:
        token_ids: [B, W]
        lengths: [B], of each row without its padding.
        wanted: [B, W], tokens whose log-probs are asked for; nothing predicts the first of a row.
    """

    def __init__(self, token_ids: Int[Tensor, "B W"], lengths: Int[Tensor, " B"], wanted: Bool[Tensor, "B W"]) -> None:
        self._device = token_ids.device
        ids, ends = token_ids.cpu().numpy(), lengths.cpu().numpy()
        rows = [row[:end] for row, end in zip(ids, ends, strict=True)]
        order, common = branches(rows)
        path, starts, num, before = np.zeros(ids.shape, np.int64), np.zeros(len(rows), np.int64), 0, 0
        for row, start in zip(order, common, strict=True):
            path[row, :start] = path[before, :start]
            path[row, start : ends[row]] = np.arange(num, num + ends[row] - start)
            starts[row], num, before = start, num + int(ends[row]) - start, row
        columns = np.arange(ids.shape[1])
        inside = columns < ends[:, None]
        place = np.empty(num, np.int64)
        place[path[inside]] = inside.ravel().nonzero()[0]  # of equal tokens of several rows any
        self._path, self._starts, self._ends, self._depth = path, starts, ends, place % ids.shape[1]
        self._parent = np.where(self._depth > 0, path.ravel()[np.maximum(place - 1, 0)], 0)
        self._is_wanted = np.zeros(num, bool)
        self._is_wanted[path[wanted.cpu().numpy() & inside & (columns > 0)]] = True
        self._size = ids.size
        self.token_ids: Int[Tensor, "1 N"] = self._tensor(ids.ravel()[place])[None]
        self._inside = self._tensor(inside)

    @property
    def share(self) -> float:
        """Nodes for each place of the rectangle."""
        return self.token_ids.shape[1] / self._size

    @cached_property
    def parent(self) -> Int[Tensor, " N"]:
        """The node before each; of a root any."""
        return self._tensor(self._parent)

    @cached_property
    def wanted(self) -> Bool[Tensor, "1 N"]:
        """Nodes whose log-probs are asked for in any row."""
        return self._tensor(self._is_wanted)[None]

    @cached_property
    def predicting(self) -> Bool[Tensor, "1 N"]:
        """The nodes before those."""
        return self._tensor(self._is_predicting)[None]

    @property
    def _is_predicting(self) -> Bool[np.ndarray, " N"]:
        found = np.zeros(len(self._depth), bool)
        found[self._parent[self._is_wanted]] = True
        return found

    def inputs(self) -> dict[str, Any]:
        """What a model's layers get beside the ids."""
        return {"position_ids": self._tensor(self._depth)[None], "attention_mask": NO_MASK.to(self._device), ROWS: self}

    def rows(self, values: Float[Tensor, "1 N"]) -> Float[Tensor, "B W"]:
        """Of each row the values of its nodes, 0 as padding; no view, since FSDP2 hangs a hook on what a forward pass returns."""
        return embedding(self._nodes, values[0, :, None])[..., 0] * self._inside

    @cached_property
    def _nodes(self) -> Int[Tensor, "B W"]:
        """Of each token of the rows."""
        return self._tensor(self._path)

    def attended(
        self,
        attend: Attend,
        query: Float[Tensor, "1 heads N d"],
        key: Float[Tensor, "1 kv N d"],
        value: Float[Tensor, "1 kv N v"],
        window: int | None,
        *,
        predicting: bool,
    ) -> Float[Tensor, "1 N heads v"]:
        """`attend` (query, key, value, mask) along paths: at all nodes, or only at those that are `predicting`, and 0 at others."""
        blocks, where = self._at_predicting if predicting else self._at_all
        states = tuple(_by_node(one) for one in (query, key, value))
        found = []
        for block in blocks:
            some = zip(states, (block.queries, block.path, block.path), (query, key, value), strict=True)
            q, k, v = (
                embedding(nodes, of).unflatten(2, (like.shape[1], -1)).transpose(1, 2) for of, nodes, like in some
            )
            found.append(attend(q, k, v, block.seen(window)).flatten(0, 1).index_select(0, block.read))
        out = query.new_zeros(query.shape[2], query.shape[1], value.shape[3])
        return (out.index_copy(0, where, torch.cat(found)) if found else out)[None]

    @cached_property
    def _at_all(self) -> tuple[list[_Block], Int[Tensor, " n"]]:
        return self._blocks(np.ones(len(self._depth), bool))

    @cached_property
    def _at_predicting(self) -> tuple[list[_Block], Int[Tensor, " n"]]:
        return self._blocks(self._is_predicting)

    def _blocks(self, asked: Bool[np.ndarray, " N"]) -> tuple[list[_Block], Int[Tensor, " n"]]:
        """Rows of similar sizes as blocks, and the nodes that these find, one block after the other."""
        own = [path[start:end] for path, start, end in zip(self._path, self._starts, self._ends, strict=True)]
        queries = [nodes[asked[nodes]] for nodes in own]
        whole = [
            start == 0 and len(some) == end for some, start, end in zip(queries, self._starts, self._ends, strict=True)
        ]
        sizes = [(len(some), int(self._depth[some[-1]]) + 1 if len(some) else 0) for some in queries]
        order = sorted((row for row, some in enumerate(queries) if len(some)), key=lambda row: (whole[row], sizes[row]))
        parts: list[list[int]] = []
        most = _ROOM_ON_A_CPU if self._device.type == "cpu" else _ROOM
        for row in order:
            part = [*parts[-1], row] if parts and whole[parts[-1][0]] == whole[row] else [row]
            widest, longest = (max(sizes[one][n] for one in part) for n in (0, 1))
            needed = sum(width * length for width, length in (sizes[one] for one in part))
            if len(part) > 1 and len(part) * widest * longest <= min(most * needed, ONE_BLOCK):
                parts[-1] = part
            else:
                parts.append([row])
        blocks = [self._block([queries[row] for row in part], part, whole[part[0]]) for part in parts]
        nodes = [queries[row] for part in parts for row in part]
        return blocks, self._tensor(np.concatenate(nodes) if nodes else np.zeros(0, np.int64))

    def _block(self, queries: Sequence[Int[np.ndarray, " w"]], rows: Sequence[int], is_whole: bool) -> _Block:
        widths = np.array([len(some) for some in queries])
        along = np.arange(widths.max())
        nodes = np.stack([some[np.minimum(along, len(some) - 1)] for some in queries])
        depth = self._depth[nodes]
        return _Block(
            queries=self._tensor(nodes),
            read=self._tensor((along < widths[:, None]).ravel().nonzero()[0]),
            path=self._tensor(self._path[list(rows), : depth.max() + 1]),
            depth=self._tensor(depth)[:, None, :, None],
            is_whole=is_whole,
        )

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self._device)


def _by_node(states: Float[Tensor, "1 h N d"]) -> Float[Tensor, "N h_times_d"]:
    """For `embedding`, whose backward pass adds up in a fixed order on every device."""
    return states[0].transpose(0, 1).flatten(1)


def keeps_keys_and_values(model: PreTrainedModel) -> bool:
    """Whether all layers attend to all earlier tokens, or to the last of them: none is recurrent."""
    attends = set(getattr(model.config.get_text_config(), "layer_types", None) or ()) <= _ATTENDS
    return attends and not getattr(model, "_is_stateful", False)


def most_that_pays(model: PreTrainedModel) -> float:
    """The largest share of the rows' places that nodes may be for a tree to take less time than padded rows."""
    if model.device.type != "cpu":
        return _PAYS
    return _PAYS_SMALL if model.config.get_text_config().hidden_size < _SMALL else _PAYS_ON_A_CPU


def takes_tree(
    model: PreTrainedModel, logprobs: Callable[[Int[Tensor, "B T"], Bool[Tensor, "B T"], RowTree | None], Tensor]
) -> bool:
    """Whether rows go through this model as a tree; asked once, of a case.

    The model has to attend by `grouped_attention` and to give the same `logprobs` of ids and action mask either way: recurrent
    layers and those that do not hand on what they get give others.
    """
    if not hasattr(model, _KNOWN):
        setattr(model, _KNOWN, _may(model) and _does_the_same(model, logprobs))
    return getattr(model, _KNOWN)


def _may(model: PreTrainedModel) -> bool:
    return is_grouped(model) and keeps_keys_and_values(model)


@torch.no_grad()
def _does_the_same(model: PreTrainedModel, logprobs: Callable[..., Tensor]) -> bool:
    lengths = torch.tensor([1, 7, 5], device=model.device)  # what one row leaves behind would show in the others
    ids = torch.arange(1, 22, device=model.device).view(3, 7) * 7919 % model.config.get_text_config().vocab_size
    ids[2, :3] = ids[1, :3]
    mask = torch.arange(7, device=model.device) < lengths[:, None]
    mask[:, 0] = False
    exact = model.dtype == torch.float32 and not torch.is_autocast_enabled(model.device.type)
    near = 1e-5 if exact else 2e-2  # of half precision one log-prob says little, all of them enough
    try:
        found = logprobs(ids, mask, RowTree(ids, lengths, mask))
    except (IndexError, RuntimeError, TypeError, ValueError):  # layers that do not take, or hand on, what they get
        return False
    expected = logprobs(ids, mask, None)
    return bool((found - expected).norm() <= near * expected.norm())
