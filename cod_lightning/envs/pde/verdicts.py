"""The small instance for tiny policies: eight equations, three places to measure, and verdicts.

The same equation and numerics. A probe is four readings around a place and a dictionary of two equations to judge by them; an
equation survives if some magnitudes within the known bounds explain all readings within the noise.
"""

import math
from collections.abc import Sequence

import numpy as np

from cod_lightning.envs.pde.library import TERMS, Array, Equation, Template, columns, equation_of, slopes
from cod_lightning.envs.pde.regression import Reading, usable

CANDIDATES: dict[str, Template] = {
    "-u": (("u", -1),),
    "-u3": (("u**3", -1),),
    "u-u2": (("u", 1), ("u**2", -1)),
    "u-u3": (("u", 1), ("u**3", -1)),
    "t-u2": (("tanh(u)", 1), ("u**2", -1)),
    "t-u3": (("tanh(u)", 1), ("u**3", -1)),
    "s-u2": (("sin(2*u)", 1), ("u**2", -1)),
    "s-u3": (("sin(2*u)", 1), ("u**3", -1)),
}
"""Words for equations; t is tanh(u) and s is sin(2u)."""
DICTIONARIES: dict[str, tuple[str, ...]] = {
    "-": ("-u", "-u3"),
    "u": ("u-u2", "u-u3"),
    "t": ("t-u2", "t-u3"),
    "s": ("s-u2", "s-u3"),
}
"""Equations that one probe can judge, by their first term."""
PLACES: dict[str, tuple[float, float]] = {"x=.2,t=0": (0.2, 0.0), "x=.2,t=.04": (0.2, 0.04), "x=.5,t=.04": (0.5, 0.04)}
"""Words for places and times."""
PROBES: dict[str, tuple[str, str]] = {f"{place}/{name}": (place, name) for place in PLACES for name in DICTIONARIES}
"""Words for probes: where, and which equations to judge."""
UNTIL = 0.12
"""No probe reads later than this."""
MAGNITUDES = (0.5, 2.0)


def probe_points(place: str) -> tuple[tuple[float, float], ...]:
    """The four points of a probe."""
    x, t = PLACES[place]
    return ((x, t), (x - 0.15, t), (x + 0.15, t), (x, t + 0.03))


def judged(
    readings: Sequence[Reading], candidates: Sequence[str], noise: tuple[float, float]
) -> tuple[dict[str, bool], dict[str, Equation]]:
    """Which candidates survive, and each one's best equation.

    A candidate survives while its squared error, in units of the noise, is at most n + 4 sqrt(2 n) for n readings.
    """
    used = usable(readings)
    u, y = np.array([reading.u for reading in used]), np.array([reading.y for reading in used])
    most = len(used) + 4 * math.sqrt(2 * len(used))
    survives: dict[str, bool] = {}
    equations: dict[str, Equation] = {}
    for word in candidates:
        template = CANDIDATES[word]
        sizes, misfit = _boxed(template, u, y, noise)
        survives[word] = misfit <= most
        pairs = zip(template, sizes, strict=True)
        equations[word] = equation_of({term: sign * size for (term, sign), size in pairs})
    return survives, equations


def _boxed(template: Template, u: Array, y: Array, noise: tuple[float, float]) -> tuple[list[float], float]:
    """(magnitudes within the bounds, squared error in units of the noise); reweighted by the slope of the last fit."""
    terms, signs = [term for term, _ in template], np.array([sign for _, sign in template], dtype=float)
    design, slope = columns(TERMS, u), slopes(TERMS, u)
    index = [TERMS.index(term) for term in terms]
    design, slope = design[:, index] * signs, slope[:, index] * signs
    sizes = np.full(len(terms), sum(MAGNITUDES) / 2)
    misfit = 0.0
    for _ in range(4):
        variance = noise[1] ** 2 + (slope @ sizes * noise[0]) ** 2
        weighted = design / variance[:, None]
        sizes = _least(weighted.T @ design + 1e-9 * np.eye(len(terms)), weighted.T @ y)
        misfit = float(np.sum((design @ sizes - y) ** 2 / variance))
    return sizes.tolist(), misfit


def _least(gram: Array, moment: Array) -> Array:
    """argmin c'Gc/2 - m'c over the box of magnitudes, for one or two unknowns: inside, else on an edge."""
    low, high = MAGNITUDES
    free = np.linalg.solve(gram, moment)
    if np.all((free >= low) & (free <= high)):
        return free
    if len(free) == 1:
        return np.clip(free, low, high)
    edges = []
    for fixed in (0, 1):
        other = 1 - fixed
        for value in MAGNITUDES:
            point = np.full(2, value)
            point[other] = np.clip((moment[other] - gram[other, fixed] * value) / gram[other, other], low, high)
            edges.append(point)
    return min(edges, key=lambda c: float(c @ gram @ c / 2 - moment @ c))
