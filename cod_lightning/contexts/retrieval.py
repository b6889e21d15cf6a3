"""Which texts are nearest to a query: by default by the words that they share, BM25.

Scored anew for each query, since the texts of a context change after every task; `bm25s` is made for an index that stays.
"""

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

_WORD = re.compile(r"\w+")
_K1, _B = 1.5, 0.75


class Similarity(ABC):
    """How near entries are to a query."""

    @abstractmethod
    def scores(self, entries: tuple, text: Callable[[object], str], query: str) -> np.ndarray:
        """[n] of each entry's text for the query: the higher, the nearer."""


def words_of(text: str) -> list[str]:
    """The words of a text in small letters; `3=gold` has two.

    >>> words_of("Lever 3 gives GOLD, 3=gold")
    ['lever', '3', 'gives', 'gold', '3', 'gold']
    """
    return _WORD.findall(text.lower())


def similarities(entries: tuple, text: Callable[[object], str], query: str) -> Float[np.ndarray, " n"]:
    """BM25 score of each entry's text for the query, 0 where they share no word; a word that is there twice counts twice.

    Lucene's form, k1 1.5, b 0.75, with the very numbers of `bm25s` (arXiv 2407.03618).
    """
    counts = [Counter(words_of(text(entry)) or [""]) for entry in entries]
    found, lengths = np.zeros(len(counts), dtype=np.float32), np.array([one.total() for one in counts])
    norms = _K1 * ((1 - _B) + _B * lengths / lengths.mean()) if counts else found
    for word in words_of(query):
        times = np.array([one[word] for one in counts], dtype=np.float32)
        if num := np.count_nonzero(times):
            idf = np.float32(math.log(1 + (len(counts) - num + 0.5) / (num + 0.5)))
            found += (idf * (times / (norms + times))).astype(np.float32)
    return found


def best(scores: Sequence[float] | Float[np.ndarray, " n"], most: int) -> list[int]:
    """Indices of the highest scores, at most so many, best first; of equal ones the later comes first.

    >>> best([1.0, 3.0, 1.0, 0.0], 3)
    [1, 2, 0]
    """
    backwards = np.asarray(scores)[::-1]
    return [len(backwards) - 1 - int(place) for place in np.argsort(-backwards, kind="stable")[:most]]
