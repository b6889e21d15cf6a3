"""u_t = u_xx + f(u) on the unit square: implicit diffusion, explicit reaction, zero at both ends."""

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.linalg import get_lapack_funcs

from cod_lightning.envs.pde.library import Array, Equation, Template, columns, reaction

LIMIT = 3.0
"""State and reaction are cut to +-LIMIT; a world is stable if its state never comes there."""
_COARSE = (65, 401)
_SMALL = 0.3
"""Below this height every reaction of the families is weaker than diffusion, so that a state only decays."""
_pttrf, _pttrs = get_lapack_funcs(("pttrf", "pttrs"), dtype=np.float64)


def profile(weights: Sequence[float], amplitude: float, num_points: int) -> Array:
    """The initial state [num_points]: sine modes with these weights, made non-negative, under a sine, `amplitude` high.

    >>> profile((1.0,), 2.0, 5).round(3).tolist()
    [0.0, 1.0, 2.0, 1.0, 0.0]
    """
    x = np.linspace(0.0, 1.0, num_points)
    modes = sum(weight * np.sin((k + 1) * np.pi * x) for k, weight in enumerate(weights))
    shape = (modes - np.min(modes)) * np.sin(np.pi * x)
    shape[[0, -1]] = 0.0
    return amplitude * shape / np.max(shape)


@lru_cache(maxsize=32)
def solution(
    equation: Equation, weights: tuple[float, ...], amplitude: float, num_points: int, num_levels: int, until: float
) -> Array:
    """u on the grid, [levels up to the time `until`, num_points]; made once, when a task is first sampled."""
    steps = min(num_levels - 1, int(np.ceil(until * (num_levels - 1))) + 1)
    dt = 1.0 / (num_levels - 1)
    diagonal, off = _factors(num_points, num_levels)
    u = np.zeros((steps + 1, num_points))
    u[0] = profile(weights, amplitude, num_points)
    for n in range(steps):
        now = u[n, 1:-1]
        push = np.clip(reaction(equation, now), -LIMIT, LIMIT)
        u[n + 1, 1:-1] = np.clip(_pttrs(diagonal, off, now + dt * push)[0], -LIMIT, LIMIT)
    u.flags.writeable = False
    return u


def measured(u: Array, num_levels: int, x: float, t: float) -> tuple[float, float]:
    """(u, u_t - u_xx) at a point, each by bilinear interpolation of the grid's values.

    Where the reaction was cut at one of the four corners, the second is the limit itself: a mean of cut and uncut values would
    look like an honest one.
    """
    num_points = u.shape[1]
    column, row = x * (num_points - 1), t * (num_levels - 1)
    i, n = min(int(column), num_points - 2), min(int(row), len(u) - 2)
    a, b = column - i, row - n
    corners = [((1 - b) * (1 - a), n, i), ((1 - b) * a, n, i + 1), (b * (1 - a), n + 1, i), (b * a, n + 1, i + 1)]
    state = sum(share * u[m, j] for share, m, j in corners)
    rates = [residual(u, num_levels, m, j) for _, m, j in corners]
    extreme = max(rates, key=abs)
    if abs(extreme) > LIMIT - 1e-6:
        return float(state), math.copysign(LIMIT, extreme)
    return float(state), float(sum(share * rate for (share, _, _), rate in zip(corners, rates, strict=True)))


def residual(u: Array, num_levels: int, n: int, i: int) -> float:
    """u_t - u_xx of the scheme itself at level n and grid point i: what the reaction added there.

    The last level has no next one and takes the step before.
    """
    if i in (0, u.shape[1] - 1):
        return 0.0
    n = min(n, len(u) - 2)
    rate = (u[n + 1, i] - u[n, i]) * (num_levels - 1)
    return float(rate - (u[n + 1, i - 1] - 2 * u[n + 1, i] + u[n + 1, i + 1]) * (u.shape[1] - 1) ** 2)


def stable(equation: Equation, weights: Sequence[float], amplitude: float) -> bool:
    """True if the state stays strictly inside the limit on a coarse grid, nothing cut."""
    start = profile(weights, amplitude, _COARSE[0])[1:-1, None]
    return _stays(np.array([[value] for _, value in equation]), [term for term, _ in equation], start)


@lru_cache(maxsize=64)
def highest_amplitude(templates: tuple[Template, ...], magnitudes: tuple[float, float]) -> float:
    """The height of a first sine mode, to 0.01, that is stable for every template with extreme magnitudes; by bisection."""
    terms = sorted({term for template in templates for term, _ in template})
    corners = [
        {term: sign * size for (term, sign), size in zip(template, sizes, strict=True)}
        for template in templates
        for sizes in itertools.product(magnitudes, repeat=len(template))
    ]
    coefficients = np.array([[corner.get(term, 0.0) for corner in corners] for term in terms])
    mode = np.repeat(np.sin(np.pi * np.linspace(0.0, 1.0, _COARSE[0]))[1:-1, None], len(corners), axis=1)
    low, high = 0.0, LIMIT
    while high - low > 0.01:
        middle = (low + high) / 2
        if _stays(coefficients, terms, middle * mode):
            low = middle
        else:
            high = middle
    return low


def _stays(coefficients: Array, terms: Sequence[str], state: Array) -> bool:
    """Whether no column of the state [points, C] reaches the limit; coefficients [terms, C]."""
    dt = 1.0 / (_COARSE[1] - 1)
    diagonal, off = _factors(*_COARSE)
    for _ in range(_COARSE[1] - 1):
        height = np.abs(state).max(axis=0)
        if not np.all(height < LIMIT):
            return False
        state, coefficients = state[:, height > _SMALL], coefficients[:, height > _SMALL]
        if not state.size:
            return True
        push = sum(columns([term], state)[..., 0] * row for term, row in zip(terms, coefficients, strict=True))
        state = _pttrs(diagonal, off, state + dt * push)[0]
    return True


@lru_cache(maxsize=16)
def _factors(num_points: int, num_levels: int) -> tuple[Array, Array]:
    """The factorised matrix 1 - dt * laplacian of the inner points, which is tridiagonal."""
    strength = (num_points - 1) ** 2 / (num_levels - 1)
    inner = num_points - 2
    diagonal, off, _ = _pttrf(np.full(inner, 1 + 2 * strength), np.full(inner - 1, -strength))
    return diagonal, off
