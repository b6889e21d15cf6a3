"""Estimated costs of unknown cells from the known ones: the map on which the scripted policy plans."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cod_lightning.envs.grid.field import TOP, Cell

SCALE = 10
"""Estimates are integers in tenths of a cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is expected of a map before anything is seen."""

    lanes: bool
    mean: float
    """Mean cost of a cell."""
    reach: float = 0.2
    """Length over which costs are alike, as a share of the side."""


def estimate(known: Mapping[Cell, int], side: int, prior: Prior) -> np.ndarray:
    """Expected costs times `SCALE`: known ones exactly, others from known ones; int64, shape [side side].

    Lanes take the cost of any known cell of their row. Hills are the posterior mean of a Gaussian process with a
    squared-exponential kernel, limited to 0..99. Unknown cells are priced a tenth lower, so that of routes that
    promise the same the one that shows more is taken. Facts about cells off the grid (of another world) are left out.
    """
    known = {cell: cost for cell, cost in known.items() if max(cell) < side}
    guess = np.full((side, side), prior.mean)
    if known and prior.lanes:
        for (row, _), cost in known.items():
            guess[row] = cost
    elif known:
        cells = np.array([row * side + column for row, column in known])
        values = np.array(list(known.values()), dtype=float) - prior.mean
        kernel = _kernel(side, prior.reach)
        noisy = kernel[np.ix_(cells, cells)] + 1e-3 * np.eye(len(cells))
        guess += (kernel[:, cells] @ np.linalg.solve(noisy, values)).reshape(side, side)
    tenths = np.rint(SCALE * guess.clip(0, TOP)).astype(np.int64)
    unknown = np.ones((side, side), dtype=bool)
    for cell, cost in known.items():
        tenths[cell] = SCALE * cost
        unknown[cell[0] if prior.lanes else cell] = False
    return tenths - unknown


@lru_cache(maxsize=64)
def _kernel(side: int, reach: float) -> np.ndarray:
    """Correlations of all pairs of cells, shape [side*side side*side]."""
    places = np.linspace(0, 1, side)
    one = np.exp(-0.5 * ((places[:, None] - places) / reach) ** 2)
    return np.kron(one, one)
