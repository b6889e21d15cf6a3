"""The plant: a point on a line whose velocity keeps a share `a` of itself and takes up `b` times the control."""

from collections.abc import Callable
from dataclasses import dataclass

PENALTY = 0.03
"""Weight of the squared controls in the loss."""
SPEED_WEIGHT = 2.0
"""Weight of the squared error of the last velocity in the loss."""

EXACT = 0.0005
"""Least standard error of an estimate from tables with three decimals."""

Law = Callable[[int, float, float], float]
"""Control at (step, position, velocity), before it is clipped to [-1, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTask:
    """One start and target, and the pack's plant."""

    a: float
    b: float
    x: float
    """First position."""
    v: float
    """First velocity."""
    target_x: float
    horizon: int
    """Steps of the run, at whose end the velocity should be 0."""


@dataclass(frozen=True, slots=True)
class PlantBelief:
    """Means and standard errors of a and b."""

    a: float
    b: float
    a_error: float = EXACT
    b_error: float = EXACT

    @property
    def knows_b(self) -> bool:
        """True if the sign of b is hardly in doubt."""
        return self.b_error < 0.6 * abs(self.b)


@dataclass(frozen=True, slots=True)
class PlantRun:
    """What a law did."""

    xs: tuple[float, ...]
    """Positions at steps 0..T."""
    vs: tuple[float, ...]
    """Velocities at steps 0..T."""
    us: tuple[float, ...]
    """Clipped controls at steps 0..T-1."""
    loss: float

    @property
    def reward(self) -> float:
        """1 / (1 + L), in (0, 1]."""
        return 1 / (1 + self.loss)


def run(task: ControlTask, law: Law) -> PlantRun:
    """Apply a law for T steps: v' = a v + b u, then x' = x + v'.

    L = (x_T - target)^2 + 2 v_T^2 + 0.03 * (sum of u^2), as in the reference.

    >>> free = ControlTask(a=0.5, b=1.0, x=0.0, v=1.0, target_x=0.75, horizon=2)
    >>> run(free, lambda t, x, v: 0.0)
    PlantRun(xs=(0.0, 0.5, 0.75), vs=(1.0, 0.5, 0.25), us=(0.0, 0.0), loss=0.125)
    """
    x, v = task.x, task.v
    xs, vs, us = [x], [v], []
    for t in range(task.horizon):
        u = min(1.0, max(-1.0, law(t, x, v)))
        v = task.a * v + task.b * u
        x = x + v
        xs.append(x)
        vs.append(v)
        us.append(u)
    effort = sum(u * u for u in us)
    loss = (x - task.target_x) ** 2 + SPEED_WEIGHT * v**2 + PENALTY * effort
    return PlantRun(tuple(xs), tuple(vs), tuple(us), loss)
