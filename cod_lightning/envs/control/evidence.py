"""Estimating the hidden numbers from the last law that the world shows again."""

import itertools
from dataclasses import dataclass, replace

from cod_lightning.envs.control.draws import ControlParameters
from cod_lightning.envs.control.plant import EXACT, ControlTask, PlantBelief, PlantRun, run
from cod_lightning.envs.expressions import Expression, ExpressionError, compile_expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The last formula that ran to the end in a pack, and what came of it."""

    formula: str
    task: ControlTask
    """What it ran on; its hidden numbers are 0 where it is read back."""
    reward: float
    miss_x: float
    """Last position minus target."""
    miss_v: float
    """Last velocity, which should be 0."""


class ActionError(ValueError):
    """A formula failed at a step."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(reason)
        self.step = step


NAMES = ("x", "v", "t", "x_target", "v_target", "horizon", "remaining_steps")
"""Variables of a formula."""


def run_formula(task: ControlTask, formula: Expression) -> PlantRun:
    """Compute the formula anew at every step; raises `ActionError`."""
    values = {"x_target": task.target_x, "v_target": 0.0, "horizon": float(task.horizon)}

    def law(t: int, x: float, v: float) -> float:
        values.update({"x": x, "v": v, "t": float(t), "remaining_steps": float(max(1, task.horizon - t))})
        try:
            return formula.evaluate(values)
        except ExpressionError as error:
            raise ActionError(t, str(error)) from None

    return run(task, law)


def implied_by(earlier: Earlier, p: ControlParameters) -> PlantBelief:
    """The hidden numbers with which the earlier formula ends where it ended: a grid, then Newton-like steps from its best.

    Two numbers from two residuals, so that other numbers may fit as well; the prior where none within the ranges do.
    """
    from scipy.optimize import least_squares

    formula = compile_expression(earlier.formula, NAMES)
    end = (earlier.task.target_x + earlier.miss_x, earlier.miss_v)

    def residuals(point: tuple[float, float]) -> list[float]:
        try:
            ended = run_formula(replace(earlier.task, a=point[0], b=point[1]), formula)
        except ActionError:
            return [1e6, 1e6]
        return [ended.xs[-1] - end[0], ended.vs[-1] - end[1]]

    def misfit(point: tuple[float, float]) -> float:
        return sum(residual**2 for residual in residuals(point))

    decays = [p.a_min + (p.a_max - p.a_min) * i / 6 for i in range(7)]
    sizes = [p.b_min + (p.b_max - p.b_min) * i / 6 for i in range(7)]
    starts = itertools.product(decays, [*sizes, *(-size for size in sizes)])
    for start in sorted(starts, key=misfit)[:4]:
        found = least_squares(residuals, start, max_nfev=30)
        a, b = map(float, found.x)
        a_inside = p.a_min - 0.01 <= a <= p.a_max + 0.01
        if a_inside and p.b_min - 0.01 <= abs(b) <= p.b_max + 0.01 and float(found.cost) < 1e-5:
            return PlantBelief(a, b, 10 * EXACT, 10 * EXACT)
    return p.prior
