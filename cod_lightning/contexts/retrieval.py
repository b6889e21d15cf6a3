"""Which texts are nearest to a query: by default by the words that they share, BM25."""

import math
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol

import numpy as np
from jaxtyping import Float

_WORD = re.compile(r"\w+")
_K1, _B = 1.5, 0.75
_MOST_INDICES, _MOST_WORDS = 64, 2**21
"""Indices that are kept, and words of all their texts; the latest one is kept whatever it takes."""
_MOST_CHANGES = 8
"""Entries that are taken out of a kept index and put into it; where more differ, a new one is made."""
_LOCK = Lock()
"""Of the list of kept indices; the one that is in use is not in it."""


def words_of(text: str) -> list[str]:
    """The words of a text in small letters; `3=gold` has two.

    >>> words_of("Lever 3 gives GOLD, 3=gold")
    ['lever', '3', 'gives', 'gold', '3', 'gold']
    """
    return _WORD.findall(text.lower())


class _Index:
    """An inverted index of entries, which follows them as some go and others come at the end.

    A text has a slot, which only grows; the slots of those that are there are `_live`, in their order.
    """

    def __init__(self, entries: tuple, text: Callable[[object], str]) -> None:
        self.entries, self._text = entries, text
        self._postings: dict[str, tuple[array[int], array[float]]] = {}
        """Of each word the slots, ascending, and how often it is in each."""
        self._lengths = array("q")
        """[slot] words of the text."""
        self._live = array("q")
        self.num_words = 0
        for entry in entries:
            self._add(entry)

    def follows(self, entries: tuple) -> bool:
        """Whether these entries are the present ones but for a few, which are then changed; otherwise nothing is."""
        removed, place, most = list[int](), 0, min(_MOST_CHANGES, len(self.entries) // 2)
        while place < len(self.entries):
            place += _num_equal(self.entries[place:], entries[place - len(removed) :])
            if place < len(self.entries):
                removed.append(place)
                place += 1
            if len(removed) > most:
                return False
        added = entries[len(self.entries) - len(removed) :]
        if len(added) > _MOST_CHANGES or len(self._lengths) > 2 * len(entries) + 64:
            return False
        for index in reversed(removed):
            self._remove(index)
        for entry in added:
            self._add(entry)
        self.entries = entries
        return True

    def scores(self, query: Sequence[str]) -> Float[np.ndarray, " n"]:
        """Of each entry for these words; a word that is there twice counts twice."""
        found = np.zeros(len(self._lengths), dtype=np.float32)
        lengths, live = np.frombuffer(self._lengths, np.int64), np.frombuffer(self._live, np.int64)
        norms = _K1 * ((1 - _B) + _B * lengths / (self.num_words / len(live)))
        for word in query:
            if posting := self._postings.get(word):
                slots, times = (np.frombuffer(part, part.typecode) for part in posting)
                idf = np.float32(math.log(1 + (len(live) - len(slots) + 0.5) / (len(slots) + 0.5)))
                found[slots] += (idf * (times / (norms[slots] + times))).astype(np.float32)
        return found[live]

    def _add(self, entry: object) -> None:
        words, slot = words_of(self._text(entry)) or [""], len(self._lengths)
        for word, times in Counter(words).items():
            slots, counts = self._postings.setdefault(word, (array("q"), array("f")))
            slots.append(slot)
            counts.append(times)
        self._lengths.append(len(words))
        self._live.append(slot)
        self.num_words += len(words)

    def _remove(self, place: int) -> None:
        words, slot = words_of(self._text(self.entries[place])) or [""], self._live.pop(place)
        for word in set(words):
            slots, counts = self._postings[word]
            if len(slots) == 1:
                del self._postings[word]
            else:
                there = bisect_left(slots, slot)
                del slots[there], counts[there]
        self.num_words -= len(words)


class Similarity(Protocol):
    """How near entries are to a query."""

    def scores(self, entries: tuple, text: Callable[[object], str], query: str) -> np.ndarray:
        """[n] of each entry's text for the query: the higher, the nearer."""
        ...


_KEPT: list[_Index] = []
"""The latest indices, the last one used last."""


def similarities(entries: tuple, text: Callable[[object], str], query: str) -> Float[np.ndarray, " n"]:
    """BM25 score of each entry's text for the query, 0 where they share no word.

    Lucene's form, k1 1.5, b 0.75, with the very numbers of `bm25s` (arXiv 2407.03618), whose index cannot be added to. An index is
    kept and follows its entries, so that one more or fewer costs no new one; scores do not depend on what is kept. The text of an
    entry has to be the same at all times.
    """
    if not entries:
        return np.zeros(0, dtype=np.float32)
    with _LOCK:
        latest = list(enumerate(_KEPT))[::-1]
        place = next((place for place, one in latest if one.entries is entries), None)
        if place is None:
            place = next((place for place, one in latest if one.follows(entries)), None)
        index = None if place is None else _KEPT.pop(place)
    if index is None:  # others go on meanwhile
        index = _Index(entries, text)
    found = index.scores(words_of(query))
    with _LOCK:
        _KEPT.append(index)
        while len(_KEPT) > 1 and (len(_KEPT) > _MOST_INDICES or sum(one.num_words for one in _KEPT) > _MOST_WORDS):
            del _KEPT[0]
    return found


def best(scores: Sequence[float] | Float[np.ndarray, " n"], most: int) -> list[int]:
    """Indices of the highest scores, at most so many, best first; of equal ones the later comes first.

    >>> best([1.0, 3.0, 1.0, 0.0], 3)
    [1, 2, 0]
    """
    backwards = np.asarray(scores)[::-1]
    return [len(backwards) - 1 - int(place) for place in np.argsort(-backwards, kind="stable")[:most]]


def _num_equal(one: tuple, other: tuple) -> int:
    """How many they begin with that are equal."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low + 1 < high:  # the first difference is in low..high-1
        middle = (low + high) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle)
    return low
