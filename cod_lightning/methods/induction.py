"""A policy from scratch begins with induction heads: where it has seen the last words before, it says what came next then.

With n the normalised embeddings, the residual stream behind layer 0 holds e_t + B1 A n_(t-1) + B2 A n_(t-2): two heads look one
and two places back (rotary positions turn a constant coordinate into a preference for a distance), A reads a word, B1 and B2 write
to places of their own. All heads of layer 1 match A n_t with A n_(s-1) in one half of their slow dimensions and A n_(t-1) with
A n_(s-2) in the other, and add what stands at s. Later layers begin as layer 1 does, but quietly: they look up what stands behind
the word that layer 1 found.
"""

import math
from typing import Any

import torch
from torch import Tensor

from cod_lightning.errors import ConfigError
from cod_lightning.models.tiny import FreshWeights

ROPE_THETA = 1e6
"""Base of the rotary frequencies, as in Qwen3's checkpoints: most dimensions hardly turn within a window, so that content is
compared wherever it stands."""
_LEAST_HEAD = 16
_FAST = (0.45, 0.25, 0.2, 0.1)
"""Weights of the fastest frequencies in a preference for a distance; with these no other distance below 100 comes close."""
_SLOW = 0.02
"""Radians a place below which a dimension serves to compare content."""
_SHARP = 2.0
"""Scale of normalised queries and keys, each."""
_QUIET = 0.3
"""Factor of what is added by feed-forward layers, by the heads of layer 0 that look nowhere, and by layers behind layer 1."""
_SURE = 1.5
"""Scale of the last layer's output, from which the words' scores are computed."""


class InductionHeads(FreshWeights):
    """The policy begins as a copier from context: the first two layers begin as induction heads, and embeddings, which are the
    output layer too, stay random vectors, so that a word that training never showed is as good as any other.

    Small transformers learn such heads only after millions of tokens, and nothing can be looked up in a context without them.
    Checkpoints of language models have them.

    Sources: induction heads (Olsson et al., arXiv 2209.11895), given to random weights in the manner of "mimetic initialization"
    (arXiv 2305.09828). What differs: they look up what stood behind the last two words, and everything but the embeddings is
    trained from there.
    """

    rope_theta = ROPE_THETA
    trains_embeddings = False

    def check(self, hidden_size: int, num_layers: int, num_heads: int, num_kv_heads: int) -> None:
        beside = "with InductionHeads"
        for name, value, fits, expected in (
            ("num_layers", num_layers, num_layers >= 2, f"at least 2 {beside}"),
            ("num_heads", num_heads, num_heads >= 3, f"at least 3 {beside}"),
            ("num_kv_heads", num_kv_heads, num_kv_heads == num_heads, f"num_heads={num_heads} {beside}"),
            (
                "hidden_size",
                hidden_size,
                hidden_size // num_heads >= _LEAST_HEAD,
                f"at least {_LEAST_HEAD * num_heads}, {_LEAST_HEAD} for each head, {beside}",
            ),
        ):
            if not fits:
                raise ConfigError(
                    f"model.policy.{name}", value, expected, "Change it, or leave model.policy.start out."
                )

    def write(self, model: Any) -> None:
        size, hidden = model.config.head_dim, model.config.hidden_size
        first, *later = (layer.self_attn for layer in model.model.layers)
        # So that an output that is sure of a word is within reach.
        embeddings = model.get_input_embeddings().weight.data.mul_(3)
        embeddings[:, 0] = 4 * embeddings.std()
        turns = ROPE_THETA ** (-torch.arange(size // 2) / (size // 2))
        read, written = _orthonormal(hidden, size).T, _orthonormal(hidden, 2 * size)
        for head, distance in enumerate((1, 2)):
            rows = slice(head * size, (head + 1) * size)
            for projection, angle in ((first.q_proj, -distance * turns), (first.k_proj, 0 * turns)):
                projection.weight.data[rows] = 0
                projection.weight.data[rows, 0] = _fast(angle)
            first.v_proj.weight.data[rows] = read
            first.o_proj.weight.data[:, rows] = 0.25 * written[:, rows]
        first.o_proj.weight.data[:, 2 * size :] *= _QUIET

        slow = [i for i in range(size // 2) if turns[i] < _SLOW]
        now, before = (list(half) + [i + size // 2 for i in half] for half in (slow[0::2], slow[1::2]))
        one_back, two_back = written[:, :size].T, written[:, size:].T
        query, key = torch.zeros(2, size, hidden)
        query[now], key[now] = read[: len(now)], 4 * one_back[: len(now)]
        query[before], key[before] = 4 * one_back[-len(before) :], 4 * two_back[-len(before) :]
        turn = torch.linalg.qr(torch.randn(hidden, hidden))[0]
        for behind, attention in enumerate(later):
            attention.q_proj.weight.data.copy_(query.repeat(model.config.num_attention_heads, 1))
            attention.k_proj.weight.data.copy_(key.repeat(model.config.num_attention_heads, 1))
            attention.v_proj.weight.data.copy_(turn)
            attention.o_proj.weight.data.copy_((_QUIET if behind else 1.0) * turn.T)
        model.model.norm.weight.data.fill_(_SURE)
        for layer in model.model.layers:
            layer.mlp.down_proj.weight.data *= _QUIET
            for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
                norm.weight.data.fill_(_SHARP)


def _orthonormal(hidden: int, count: int) -> Tensor:
    """So many orthonormal columns [hidden, count] that leave the constant coordinate alone."""
    columns = torch.zeros(hidden, count)
    columns[1:] = torch.linalg.qr(torch.randn(hidden - 1, count))[0]
    return columns


def _fast(angles: Tensor) -> Tensor:
    """A head's vector [size] with the fast frequencies alone, each turned by its angle."""
    vector = torch.zeros(2, len(angles))
    for i, weight in enumerate(_FAST):
        vector[0, i], vector[1, i] = (math.sqrt(weight) * part(float(angles[i])) for part in (math.cos, math.sin))
    return vector.flatten()
