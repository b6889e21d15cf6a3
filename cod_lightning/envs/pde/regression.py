"""The sparse regression that a policy may call: every small set of the chosen terms is fitted, the worst point ranks."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cod_lightning.envs.pde.library import TERMS, Array, Equation, columns, equation_of, reaction, support
from cod_lightning.envs.pde.numerics import LIMIT

SATURATED = LIMIT - 0.02
"""Residuals from here on may have been cut and are left out of fits."""
_RIDGE = 1e-8


class Reading(NamedTuple):
    """One measurement: where, when, the state, and u_t - u_xx."""

    x: float
    t: float
    u: float
    y: float


@dataclass(frozen=True, slots=True)
class Fit:
    """An equation with its largest absolute error over the points."""

    equation: Equation
    error: float

    def predicted(self, u: float) -> float:
        """f(u)."""
        return float(reaction(self.equation, np.array(u)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """What one call found."""

    fits: tuple[Fit, ...]
    """Best first."""
    condition: float
    """Of the best equation's columns, each scaled to length 1."""
    used: tuple[Reading, ...]
    left_out: int
    """Points whose residual may have been cut."""


def usable(readings: Iterable[Reading]) -> tuple[Reading, ...]:
    """Readings whose residual was not cut.

    >>> usable([Reading(0.5, 0.0, 2.0, -3.0), Reading(0.5, 0.1, 1.0, -0.5)])
    (Reading(x=0.5, t=0.1, u=1.0, y=-0.5),)
    """
    return tuple(reading for reading in readings if abs(reading.y) < SATURATED)


def supports_of(terms: Sequence[str], max_terms: int) -> tuple[tuple[str, ...], ...]:
    """All sets of 1 to max_terms of these terms; at most 575, since the library has 15 and worlds have up to 3.

    >>> len(supports_of(TERMS, 3))
    575
    """
    sizes = range(1, max_terms + 1)
    return tuple(itertools.chain.from_iterable(itertools.combinations(terms, size) for size in sizes))


def regress(
    readings: Sequence[Reading], supports: Sequence[tuple[str, ...]], threshold: float, own: Sequence[Equation] = ()
) -> Regression:
    """Fit every set of terms by least squares and rank by the largest absolute error; a policy's own equations are scored too.

    Coefficients below the threshold are dropped after the fit, the rest rounded to 3 digits. At least one reading must be
    usable.
    """
    used = usable(readings)
    u, y = np.array([reading.u for reading in used]), np.array([reading.y for reading in used])
    found: dict[Equation, Fit] = {}
    for equation in (*own, *_fitted(u, y, supports, threshold)):
        if equation and equation not in found:
            found[equation] = Fit(equation, float(np.max(np.abs(reaction(equation, u) - y))))
    fits = tuple(sorted(found.values(), key=lambda fit: (fit.error, len(fit.equation))))
    condition = condition_number(support(fits[0].equation), u) if fits else math.inf
    return Regression(fits=fits, condition=condition, used=used, left_out=len(readings) - len(used))


def condition_number(terms: Sequence[str], u: Array) -> float:
    """Of the terms' columns at these u, each scaled to length 1; infinite for too few points.

    >>> condition_number(("u",), np.array([0.5, 1.0]))
    1.0
    """
    if len(u) < len(terms):
        return math.inf
    design = columns(terms, u)
    lengths = np.sqrt(np.sum(design**2, axis=0))
    if not np.all(lengths > 0):
        return math.inf
    values = np.linalg.svd(design / lengths, compute_uv=False)
    return float(values[0] / values[-1]) if values[-1] > 0 else math.inf


def _fitted(u: Array, y: Array, supports: Sequence[tuple[str, ...]], threshold: float) -> Iterator[Equation]:
    if not supports:
        return
    design = columns(TERMS, u)
    gram, moment = design.T @ design, design.T @ y
    for size in sorted({len(terms) for terms in supports}):
        chosen = [terms for terms in supports if len(terms) == size]
        index = np.array([[TERMS.index(term) for term in terms] for terms in chosen])
        matrices = gram[index[:, :, None], index[:, None, :]] + _RIDGE * np.eye(size)
        solved = np.linalg.solve(matrices, moment[index][..., None])[..., 0]
        for terms, values in zip(chosen, solved.tolist(), strict=True):
            pairs = zip(terms, values, strict=True)
            yield equation_of({term: value for term, value in pairs if abs(value) >= threshold})
