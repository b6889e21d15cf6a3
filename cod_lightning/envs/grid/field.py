"""Hidden maps of costs: smooth hills, as in the reference, or lanes in which all cells of a row cost the same."""

from functools import lru_cache

import numpy as np

Cell = tuple[int, int]
"""Row and column, counted from 0."""
Costs = tuple[tuple[int, ...], ...]
"""Integers 0..99 by row."""
TOP = 99
"""Highest cost of a cell."""
LANE_COSTS = (0, 50, TOP)
"""Costs of lanes."""


def hill_costs(rng: np.random.Generator, side: int, hills: int, scale_min: float, scale_max: float) -> np.ndarray:
    """A sum of anisotropic Gaussian hills, rescaled to 0..1, squared, times 99, rounded.

    Centres are uniform in the unit square over which the cells are spread from edge to edge; the long scale is uniform in
    [scale_min, scale_max], the short one in [scale_min, long], the angle in [0, pi), the amplitude in [0.8, 1.2]. Returns
    integers of shape [side side], with a 0 and a 99 among them.
    """
    y, x = np.meshgrid(*(np.linspace(0, 1, side),) * 2, indexing="ij")
    field = np.zeros((side, side))
    for _ in range(hills):
        centre_x, centre_y = rng.random(2)
        long = rng.uniform(scale_min, scale_max)
        short = rng.uniform(scale_min, long)
        angle, amplitude = rng.uniform(0, np.pi), rng.uniform(0.8, 1.2)
        along = (x - centre_x) * np.cos(angle) + (y - centre_y) * np.sin(angle)
        across = (y - centre_y) * np.cos(angle) - (x - centre_x) * np.sin(angle)
        field += amplitude * np.exp(-0.5 * ((along / long) ** 2 + (across / short) ** 2))
    field = (field - field.min()) / max(float(np.ptp(field)), 1e-12)
    return np.rint(TOP * field**2).astype(np.int64)


def lane_costs(rng: np.random.Generator, side: int) -> np.ndarray:
    """One cost for each row, uniform over three, the cheapest and the dearest among them; shape [side side]."""
    while True:
        drawn = np.array(LANE_COSTS)[rng.integers(len(LANE_COSTS), size=side)]
        if drawn.min() == 0 and drawn.max() == TOP:
            return np.repeat(drawn[:, None], side, axis=1)


def plain(costs: np.ndarray) -> Costs:
    """As tuples of int."""
    return tuple(tuple(int(cost) for cost in row) for row in costs)


def text_of(costs: Costs) -> str:
    """The canonical text by which a map belongs to a split.

    >>> text_of(((0, 5), (99, 7)))
    '0 5/99 7'
    """
    return "/".join(" ".join(map(str, row)) for row in costs)


@lru_cache(maxsize=64)
def units(side: int, lanes: bool) -> tuple[tuple[Cell, ...], ...]:
    """Cells that are known to share one cost: whole rows in lanes, else single cells.

    >>> units(2, True)
    (((0, 0), (0, 1)), ((1, 0), (1, 1)))
    """
    rows = tuple(tuple((row, column) for column in range(side)) for row in range(side))
    return rows if lanes else tuple((cell,) for row in rows for cell in row)
