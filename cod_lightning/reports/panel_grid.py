"""Figures of several panels."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
"""Panels beside each other at most."""


def grid(count: int, size: tuple[float, float]) -> "tuple[Figure, list[Axes]]":
    """A figure with that many panels of that size in inches."""
    from matplotlib.figure import Figure

    columns = min(count, _COLUMNS)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), dpi=150, layout="constrained")
    return figure, [figure.add_subplot(rows, columns, index + 1) for index in range(count)]
