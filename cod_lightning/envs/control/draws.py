"""Drawing plants and tasks, from the parameters that decide which worlds there are, and what a run tells of a plant."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cod_lightning.envs.base import Unchanging, split_of_text
from cod_lightning.envs.checks import check_span, exhausted
from cod_lightning.envs.control.plant import EXACT, ControlTask, PlantBelief
from cod_lightning.errors import check_between
from cod_lightning.ranges import NonNegative
from cod_lightning.types import Split

MOST_DRAWS = 2000
_ROUNDING = 0.0006
"""Standard error of one equation due to tables with three decimals."""
_SURPRISE = 25.0
"""Mean squared misfit, in units of what is expected, from which an old belief is dropped."""


@dataclass(frozen=True, kw_only=True)
class ControlParameters(Unchanging):
    """The parameters of `OptimalControl`, and what is drawn by them. Raises `ConfigError` for one that cannot work."""

    a_min: float = 0.55
    """Smallest share of the velocity that is kept at a step."""
    a_max: float = 1.2
    """Largest share."""
    b_min: float = 0.35
    """Smallest magnitude of the gain of the control; its sign is hidden too."""
    b_max: float = 1.5
    """Largest magnitude."""
    start_max: NonNegative = 2.0
    """First positions lie within plus and minus this."""
    speed_max: NonNegative = 1.5
    """First velocities lie within plus and minus this."""
    target_max: float = 8.0
    """Targets lie within plus and minus this; the wanted last velocity is 0."""
    horizon: int = 12
    """Steps of a run, 2 to 30."""
    world_memory: bool = True
    """Whether an observation also shows the last law of the pack that ran, with its outcome, as the reference does
    (include_previous_control_policy). Without a note, later tasks then go better too."""
    protocol: Literal["natural", "compact"] = "natural"
    """Sentences and formulas for language models (natural), or fused words (compact) for tiny policies: whole numbers as starts and
    targets, and eight laws to choose from."""

    @property
    def prior(self) -> PlantBelief:
        """Before anything is known."""
        spread = max(2 * EXACT, (self.a_max - self.a_min) / math.sqrt(12))
        square = (self.b_min**2 + self.b_min * self.b_max + self.b_max**2) / 3
        return PlantBelief((self.a_min + self.a_max) / 2, 0.0, spread, math.sqrt(square))

    def knows_a(self, belief: PlantBelief) -> bool:
        """True if a run has narrowed a."""
        return belief.a_error < 0.75 * self.prior.a_error

    def learned(self, old: PlantBelief, vs: Sequence[float], us: Sequence[float]) -> PlantBelief:
        """A belief after a run with velocities v_0..v_T and controls u_0..u_{T-1}: least squares with the old belief as prior.

        Where the run contradicts the old belief plainly, as after a change of the hidden rule, it is judged alone.
        """
        rows, after = np.column_stack([vs[:-1], us]), np.asarray(vs[1:])
        misfit = after - rows @ np.array([old.a, old.b])
        expected = _ROUNDING**2 + (rows**2) @ np.array([old.a_error**2, old.b_error**2])
        if float(np.mean(misfit**2 / expected)) > _SURPRISE:
            old = self.prior
        weights = np.diag([old.a_error**-2, old.b_error**-2])
        covariance = np.linalg.inv(rows.T @ rows / _ROUNDING**2 + weights)
        mean = covariance @ (rows.T @ after / _ROUNDING**2 + weights @ np.array([old.a, old.b]))
        errors = np.maximum(np.sqrt(np.diag(covariance)), EXACT)
        return PlantBelief(float(mean[0]), float(mean[1]), float(errors[0]), float(errors[1]))

    def draw(self, rng: random.Random) -> tuple[float, float]:
        """a and b with three decimals, so that tables show them exactly."""
        a = round(rng.uniform(self.a_min, self.a_max), 3)
        return a, round(rng.choice((-1, 1)) * rng.uniform(self.b_min, self.b_max), 3)

    @property
    def name(self) -> str:
        """Differs wherever other worlds are drawn."""
        parts = [
            f"control-a{self.a_min:g}-{self.a_max:g}-b{self.b_min:g}-{self.b_max:g}",
            f"x{self.start_max:g}-v{self.speed_max:g}-to{self.target_max:g}",
            f"T{self.horizon}",
            "grid" if self.protocol == "compact" else "",
        ]
        return "-".join(part for part in parts if part)

    def hidden(self, rng: random.Random, split: Split) -> tuple[float, float]:
        """a and b of a split; a pair belongs to one split in every configuration."""
        for _ in range(MOST_DRAWS):
            a, b = self.draw(rng)
            if split_of_text(f"plant {a:.3f} {b:.3f}") is split:
                return a, b
        wanted = f"a plant of the split {split} in these ranges"
        raise exhausted("b_max", self.b_max, wanted, MOST_DRAWS, "Widen the ranges.")

    def task(self, seed: int, hidden: tuple[float, float]) -> ControlTask:
        """Start and target."""
        rng = random.Random(seed)
        limits = (self.start_max, self.speed_max, self.target_max)
        if self.protocol == "compact":
            x, v, target = (float(rng.randint(-int(most), int(most))) for most in limits)
            while target == x:
                target = float(rng.randint(-int(self.target_max), int(self.target_max)))
        else:
            x, v, target = (round(rng.uniform(-most, most), 3) + 0.0 for most in limits)
        a, b = hidden
        return ControlTask(a=a, b=b, x=x, v=v, target_x=target, horizon=self.horizon)

    def __post_init__(self) -> None:
        check_span("a_min", self.a_min, "a_max", self.a_max, 0, 1.5, "Use 0.55 to 1.2.", above=True)
        check_span("b_min", self.b_min, "b_max", self.b_max, 0, 10, "Use 0.35 to 1.5.", above=True)
        lowest = 1.0 if self.protocol == "compact" else 0.001
        check_between("data.env.target_max", self.target_max, lowest, 100.0, "8.0 is the reference's.")
        check_between("data.env.horizon", self.horizon, 2, 30, "12 is the reference's.")
