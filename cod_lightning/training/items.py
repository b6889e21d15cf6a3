"""How items reach a module: counted by Lightning, handed on sealed, fetched only when needed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


class Sealed:
    """An item that Lightning's precision plugins pass on as it is.

    They go through whatever a loader yields and cast its numbers: under `bf16-true` behaviour log-probabilities and
    rewards would lose all but three digits, and frozen records are refused.
    """

    __slots__ = ("item",)

    def __init__(self, item: Any) -> None:
        self.item = item


@dataclass(frozen=True)
class SizedItems:
    """An iterable with a length: Lightning then fetches an item only when it is needed."""

    items: Callable[[], Iterator[Any]]
    length: int

    def __iter__(self) -> Iterator[Sealed]:
        return map(Sealed, self.items())

    def __len__(self) -> int:
        return self.length
