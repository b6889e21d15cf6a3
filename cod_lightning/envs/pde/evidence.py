"""The evidence of readings for each set of terms: the linear model with Gaussian priors, in closed form.

Used by the reference players only; the world's own regression is a plainer tool.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from cod_lightning.envs.pde.library import TERMS, Array, Equation, columns, equation_of, reaction, slopes
from cod_lightning.envs.pde.regression import supports_of

LEAST_NOISE = 1e-4
"""Of u, about what its rounding to four decimals takes for noise."""
_MEAN, _SPREAD = 1.25, 0.45
"""Of a coefficient's magnitude: close to the uniform law on [0.5, 2]."""


@dataclass(frozen=True)
class EquationBelief:
    """Sets of terms with their probability and most probable equation, best first."""

    equations: tuple[Equation, ...]
    probabilities: tuple[float, ...]
    misfit: float
    """Of the best: mean squared error in units of the noise; about 1 where the model holds."""


def believe(
    pairs: Sequence[tuple[float, float]],
    min_terms: int,
    max_terms: int,
    boosts: Mapping[tuple[str, ...], float] | None = None,
    most: int = 8,
    noise: float = 0.002,
) -> EquationBelief:
    """Posterior over the sets of terms after readings (u, y); every number of terms is as likely before, and every set of it.

    For a set with columns X and signs s, y ~ N(X s m, R + X S X'); R_ii = (noise / 4)^2 + (f'(u_i) noise)^2, with f' from a first
    fit. `boosts` adds to the log-probability of sets.
    """
    u = np.clip(np.array([pair[0] for pair in pairs]), -3.1, 3.1)
    y = np.array([pair[1] for pair in pairs])
    sets, logs, best = _all_supports(min_terms, max_terms), [], []
    for size in range(min_terms, max_terms + 1):
        index = np.array([[TERMS.index(term) for term in terms] for terms in sets if len(terms) == size])
        log_evidence, coefficients = _evidence(u, y, index, noise)
        logs.append(log_evidence - np.log(len(index)))
        best.extend(coefficients.tolist())
    scores = np.concatenate(logs)
    for place, terms in enumerate(sets):
        scores[place] += (boosts or {}).get(terms, 0.0)
    shares = np.exp(scores - scores.max())
    order = np.argsort(-shares, kind="stable")
    shares = shares / shares.sum()
    ranked = ((equation_of(dict(zip(sets[i], best[i], strict=True))), float(shares[i])) for i in order)
    left = (one for one in ranked if one[0])  # of the others every number is rounded away
    equations, probabilities = zip(*islice(left, most), strict=True)
    return EquationBelief(equations, probabilities, _misfit(equations[0], u, y, noise))


def misfit(equation: Equation, pairs: Sequence[tuple[float, float]], noise: float) -> float:
    """Mean squared error of an equation in units of the noise."""
    return _misfit(equation, np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs]), noise)


def _misfit(equation: Equation, u: Array, y: Array, noise: float) -> float:
    if not len(u):
        return 0.0
    slope = slopes([term for term, _ in equation], u) @ np.array([value for _, value in equation])
    return float(np.mean((reaction(equation, u) - y) ** 2 / ((noise / 4) ** 2 + (slope * noise) ** 2)))


def _evidence(u: Array, y: Array, index: NDArray[np.intp], noise_u: float) -> tuple[Array, Array]:
    """(log evidence [S], coefficients [S, k]) of the sets [S, k], the better of all sign patterns' coefficients."""
    num_sets, size = index.shape
    design = np.moveaxis(columns(TERMS, u)[:, index], 0, 1)  # [S, n, k]
    slope = np.moveaxis(slopes(TERMS, u)[:, index], 0, 1)
    means = _MEAN * np.array(list(product((1.0, -1.0), repeat=size)))  # [P, k]
    noise = np.full((num_sets, len(u)), (noise_u / 4) ** 2 + (2 * noise_u) ** 2)
    total, coefficients = np.zeros(num_sets), np.zeros((num_sets, size))
    for _ in range(3):
        weighted = design / noise[..., None]
        precision = np.einsum("snk,snj->skj", weighted, design) + np.eye(size) / _SPREAD**2
        moment = np.einsum("snk,n->sk", weighted, y)[:, None, :] + means[None] / _SPREAD**2  # [S, P, k]
        solved = np.linalg.solve(precision, np.swapaxes(moment, 1, 2))  # [S, k, P]
        fit = 0.5 * np.einsum("spk,skp->sp", moment, solved) - 0.5 * np.sum(means**2, axis=1) / _SPREAD**2
        best = np.argmax(fit, axis=1)
        coefficients = solved[np.arange(num_sets), :, best]
        scale = 0.5 * np.sum(y**2 / noise, axis=1) + 0.5 * np.sum(np.log(noise), axis=1)
        determinant = 0.5 * np.linalg.slogdet(precision)[1] + size * np.log(_SPREAD)
        top = fit.max(axis=1)
        total = top + np.log(np.mean(np.exp(fit - top[:, None]), axis=1)) - scale - determinant
        noise = (noise_u / 4) ** 2 + (np.einsum("snk,sk->sn", slope, coefficients) * noise_u) ** 2
    return total, coefficients


@lru_cache(maxsize=16)
def _all_supports(min_terms: int, max_terms: int) -> tuple[tuple[str, ...], ...]:
    return tuple(terms for terms in supports_of(TERMS, max_terms) if len(terms) >= min_terms)
