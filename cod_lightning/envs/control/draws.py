"""Drawing plants and tasks, from the parameters that decide which worlds there are."""

import random
from dataclasses import dataclass
from typing import Literal

from cod_lightning.envs.checks import check_between, check_choice, check_span
from cod_lightning.envs.control.belief import PlantRanges
from cod_lightning.envs.control.plant import TYPICAL, ControlTask
from cod_lightning.envs.splits import split_of_text
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split

MOST_DRAWS = 2000
_SYMBOLS = (("x", "p", "q", "s"), ("v", "w", "r"), ("u", "f", "c"), (("a", "b"), ("g", "k"), ("alpha", "beta")))


@dataclass(frozen=True, kw_only=True)
class Draws:
    """What can be drawn; the fields are the world's parameters of the same names."""

    ranges: PlantRanges
    start_max: float
    speed_max: float
    target_max: float
    horizon_min: int
    horizon_max: int
    protocol: Literal["natural", "compact"]
    labels: Literal["fixed", "random"]

    @property
    def name(self) -> str:
        """Differs wherever other worlds are drawn."""
        r = self.ranges
        parts = [
            f"control-a{r.a_min:g}-{r.a_max:g}-b{r.b_min:g}-{r.b_max:g}",
            f"x{self.start_max:g}-v{self.speed_max:g}-to{self.target_max:g}",
            f"T{self.horizon_min}" + (f"-{self.horizon_max}" if self.horizon_min < self.horizon_max else ""),
            f"noise{r.noise:g}" if r.noise else "",
            "grid" if self.protocol == "compact" else "",
            "labels" if self.labels == "random" else "",
        ]
        return "-".join(part for part in parts if part)

    def hidden(self, rng: random.Random, split: Split) -> tuple[float, float]:
        """a and b of a split; a pair belongs to one split in every configuration."""
        for _ in range(MOST_DRAWS):
            a, b = self.ranges.draw(rng)
            if split_of_text(f"plant {a:.3f} {b:.3f}") is split:
                return a, b
        expected = f"a plant of the split {split} in these ranges"
        raise ConfigError("data.env.b_max", self.ranges.b_max, expected, "Widen the ranges.")

    def symbols(self, rng: random.Random) -> tuple[str, ...]:
        """The usual ones, or others."""
        if self.labels == "fixed":
            return TYPICAL
        position, velocity, control, hidden = _SYMBOLS
        return rng.choice(position), rng.choice(velocity), rng.choice(control), *rng.choice(hidden)

    def task(self, seed: int, hidden: tuple[float, float], symbols: tuple[str, ...]) -> ControlTask:
        """Start, target, horizon and noise."""
        rng = random.Random(seed)
        limits = (self.start_max, self.speed_max, self.target_max)
        if self.protocol == "compact":
            x, v, target = (float(rng.randint(-int(most), int(most))) for most in limits)
            while target == x:
                target = float(rng.randint(-int(self.target_max), int(self.target_max)))
        else:
            x, v, target = (round(rng.uniform(-most, most), 3) + 0.0 for most in limits)
        horizon = rng.randint(self.horizon_min, self.horizon_max)
        sigma = self.ranges.noise
        noise = tuple(round(rng.gauss(0.0, sigma), 6) for _ in range(horizon)) if sigma else ()
        a, b = hidden
        return ControlTask(a=a, b=b, x=x, v=v, target_x=target, horizon=horizon, noise=noise, symbols=symbols)

    def check(self) -> None:
        """Raise a `ConfigError` for the first parameter that cannot work."""
        r = self.ranges
        check_span("a_min", r.a_min, "a_max", r.a_max, 0, 1.5, "Use 0.55 to 1.2.", above=True)
        check_span("b_min", r.b_min, "b_max", r.b_max, 0, 10, "Use 0.35 to 1.5.", above=True)
        check_between("data.env.start_max", self.start_max, 0.0, 20.0, "2.0 is the reference's.")
        check_between("data.env.speed_max", self.speed_max, 0.0, 20.0, "1.5 is the reference's.")
        lowest = 1.0 if self.protocol == "compact" else 0.001
        check_between("data.env.target_max", self.target_max, lowest, 100.0, "8.0 is the reference's.")
        check_between("data.env.process_noise", r.noise, 0.0, 1.0, "0 is the reference's.")
        low, high = self.horizon_min, self.horizon_max
        check_span("horizon_min", low, "horizon_max", high, 2, 30, "Use 12 for both, as the reference.")
        check_choice("data.env.protocol", self.protocol, ("natural", "compact"))
        check_choice("data.env.labels", self.labels, ("fixed", "random"))
        if self.protocol == "compact" and self.labels == "random":
            raise ConfigError("data.env.labels", "random", "fixed where the protocol is compact", "Leave it out.")
