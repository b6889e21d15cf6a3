"""Which texts are nearest to a query, by the words that they share: BM25."""

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence

import bm25s
import numpy as np
from jaxtyping import Float

_WORD = re.compile(r"\w+")
_MOST_INDICES = 64
_KEPT: OrderedDict[int, tuple[object, bm25s.BM25]] = OrderedDict()
"""The latest indices, by the identity of the tuple that each is of; holding the tuple keeps its identity from being used again."""


def words_of(text: str) -> list[str]:
    """The words of a text in small letters; `3=gold` has two.

    >>> words_of("Lever 3 gives GOLD, 3=gold")
    ['lever', '3', 'gives', 'gold', '3', 'gold']
    """
    return _WORD.findall(text.lower())


def similarities(entries: tuple, text: Callable[[object], str], query: str) -> Float[np.ndarray, " n"]:
    """BM25 score of each entry's text for the query, 0 where they share no word.

    An index is made once for a tuple, and the latest are kept. Lucene's form of BM25 (`bm25s`, arXiv 2407.03618), k1 1.5, b 0.75.
    """
    if not entries:
        return np.zeros(0, dtype=np.float32)
    kept = _KEPT.get(id(entries))
    if kept is None or kept[0] is not entries:
        index = bm25s.BM25()
        index.index([words_of(text(entry)) or [""] for entry in entries], show_progress=False)
        kept = _KEPT[id(entries)] = entries, index
        if len(_KEPT) > _MOST_INDICES:
            _KEPT.popitem(last=False)
    known = [word for word in words_of(query) if word in kept[1].vocab_dict]
    return kept[1].get_scores(known) if known else np.zeros(len(entries), dtype=np.float32)


def best(scores: Sequence[float] | Float[np.ndarray, " n"], most: int) -> list[int]:
    """Indices of the highest scores, at most so many, best first; of equal ones the later comes first.

    >>> best([1.0, 3.0, 1.0, 0.0], 3)
    [1, 2, 0]
    """
    backwards = np.asarray(scores)[::-1]
    return [len(backwards) - 1 - int(place) for place in np.argsort(-backwards, kind="stable")[:most]]
