"""Values that a snapshot of a world shares."""

from typing import Any, Self


class Unchanging:
    """Never changes once it is made, so its copy is itself: worlds are copied for every lifecycle."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self
