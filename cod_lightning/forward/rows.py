"""What one forward pass feeds: the new ids of rows of unequal length, one row after the other."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int


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

    @property
    def num_used(self) -> int:
        """Columns of the longest row, the new ones included."""
        return int((self.starts + self.lengths).max())

    def similar(self) -> list[slice]:
        """Runs of rows, given shortest first, that a rectangle does not pad by much; single tokens by themselves."""
        out: list[slice] = []
        begin, lengths = 0, self.lengths.tolist()
        for end, length in enumerate(lengths):
            if length > (1 if lengths[begin] == 1 else 2 * lengths[begin] + 8):
                out.append(slice(begin, end))
                begin = end
        return [*out, slice(begin, len(lengths))]
