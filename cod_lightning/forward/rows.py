"""What one forward pass feeds: the new ids of rows of unequal length, one row after the other."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

import numpy as np
from jaxtyping import Int

_WIDTHS = (1, *(26 * 2**n - 10 for n in range(20)))
"""Of a class the widest row: 1, 16, 42, 94 and so on."""
_WORTH_SPLITTING = 2000
"""Columns, summed over rows of a single id, that a further block has to leave out."""
_NEXT_QUERIES = 5
"""Further ids of a row that cost as much per column as reading the column does."""


@dataclass(frozen=True)
class Rows:
    """Of b rows the slot in the cache, the columns that are taken there, and the new ids."""

    slots: Int[np.ndarray, " b"]
    starts: Int[np.ndarray, " b"]
    lengths: Int[np.ndarray, " b"]
    """Of the new ids, at least 1 each."""
    ids: Int[np.ndarray, " T"]
    """One row after the other."""

    def __getitem__(self, part: slice) -> "Rows":
        """Some of them."""
        ends = self.ends[part]
        ids = self.ids[ends[0] - self.lengths[part][0] : ends[-1]]
        return Rows(self.slots[part], self.starts[part], self.lengths[part], ids)

    @cached_property
    def ends(self) -> Int[np.ndarray, " b"]:
        """Where each row ends in `ids`."""
        return self.lengths.cumsum()

    @cached_property
    def columns(self) -> Int[np.ndarray, " T"]:
        """Of every new id, which is its position in the row."""
        if len(self.ids) == len(self.lengths):
            return self.starts
        return np.arange(len(self.ids)) + np.repeat(self.starts - self.ends + self.lengths, self.lengths)

    @cached_property
    def used(self) -> Int[np.ndarray, " b"]:
        """Columns of each row, the new ones included."""
        return self.starts + self.lengths

    @property
    def num_used(self) -> int:
        """Columns of the longest row, the new ones included."""
        return int(self.used.max())

    def similar(self) -> list[slice]:
        """Rows of one `width_class` each, in order of that class."""
        classes = np.searchsorted(_WIDTHS, self.lengths)
        ends = (classes[1:] != classes[:-1]).nonzero()[0] + 1
        return [slice(begin, end) for begin, end in pairwise((0, *ends.tolist(), len(classes)))]

    def blocks(self) -> list[slice]:
        """The same, but first rows and last rows of a class apart where this leaves out enough columns: best in their order."""
        return list(chain.from_iterable(map(self._in_two, self.similar())))

    def _in_two(self, part: slice) -> list[slice]:
        used, num = self.used[part], part.stop - part.start
        width = 1 + (self.lengths[part].max() - 1) / _NEXT_QUERIES
        if width * num * used.max() < _WORTH_SPLITTING:
            return [part]  # all of them are not as many
        before, after = np.maximum.accumulate(used), np.maximum.accumulate(used[::-1])[::-1]
        columns = np.arange(num) * np.roll(before, 1) + np.arange(num, 0, -1) * after
        middle = part.start + int(columns.argmin())
        if width * (columns[0] - columns.min()) < _WORTH_SPLITTING:
            return [part]
        return [slice(part.start, middle), slice(middle, part.stop)]


def width_class(num_ids: int) -> int:
    """A rectangle does not pad rows by much whose numbers of new ids are of one class; single tokens have one of their own."""
    return bisect_left(_WIDTHS, num_ids)
