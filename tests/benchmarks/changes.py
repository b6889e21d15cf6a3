"""What was done for speed, each undone by itself: for benchmarks that say what it gives."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

import cod_lightning.engines.transformers as engine
import cod_lightning.forward.attention as attention
import cod_lightning.forward.packed as packed
import cod_lightning.forward.packed as rows
import cod_lightning.modules.policy as policy
import cod_lightning.rollout.chat as chat
from cod_lightning.forward.packed import Rows
from tests.benchmarks.rectangles import RectangleCache, feed, rectangle


def _torchs_attention() -> None:
    attention._ROW = -1


def _transformers_norm() -> None:
    policy.use_rms_norm = engine.use_rms_norm = _nothing


def _whole_last_layer() -> None:
    def whole(model: Any, positions: Any) -> nullcontext[None]:
        return nullcontext()

    policy.read_only_at = packed.read_only_at = whole


def _memory_given_back() -> None:
    policy.keep_freed_memory = lambda: False


def _rectangles() -> None:
    reset = engine.TransformersEngine._reset

    def reset_padded(self: Any) -> None:
        reset(self)
        self._cache = RectangleCache()

    def logits_padded(self: Any, fed: Rows) -> Tensor:
        out = []
        for some in (fed[part] for part in fed.similar()):
            logits = feed(self._bound().model, self._cache, rectangle(some))
            out.append(logits[some.slots.argsort().argsort()])
        return torch.cat(out)

    engine.TransformersEngine._reset, engine.TransformersEngine._logits = reset_padded, logits_padded


def _columns_of_the_longest() -> None:
    rows._WORTH_SPLITTING = float("inf")


def _every_row_by_itself() -> None:
    policy.takes_tree = lambda model, logprobs: False


def _every_sibling_by_itself() -> None:
    def apart(turns: Sequence[Any]) -> tuple[list[int], list[int]]:
        everyone = list(range(len(turns)))
        return everyone, everyone

    engine._opened_alike = apart


def _wrapped_tokenizer() -> None:
    begin = chat.Chat.__init__

    def begin_wrapped(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self.backend, self._plain = None, False

    chat.Chat.__init__ = begin_wrapped


def _nothing(model: Any) -> None:
    return


UNDO: dict[str, Callable[[], None]] = {
    "attention of short rows written out": _torchs_attention,
    "RMSNorm's own backward pass": _transformers_norm,
    "last layer's network only where it is read": _whole_last_layer,
    "freed memory kept": _memory_given_back,
    "what rows begin with once": _every_row_by_itself,
    "rollout's rows without padding, prompts and tokens in one pass": _rectangles,
    "rows with few columns apart from those with many": _columns_of_the_longest,
    "siblings' first prompt once": _every_sibling_by_itself,
    "texts without the tokenizer's wrapper": _wrapped_tokenizer,
}
EVERYTHING = "all of these"


def undo(name: str) -> None:
    """From here on in this process."""
    for one, action in UNDO.items():
        if name in (one, EVERYTHING):
            action()
