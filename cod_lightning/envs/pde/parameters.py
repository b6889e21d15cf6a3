"""What a configuration of PDE Discovery consists of, checked at once."""

import math
from dataclasses import dataclass
from typing import Literal

from cod_lightning.envs.base import Unchanging
from cod_lightning.envs.checks import check_span, check_unused
from cod_lightning.envs.pde.library import eligible
from cod_lightning.errors import ConfigError, check_between
from cod_lightning.ranges import NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class PDEParameters(Unchanging):
    """The parameters of `PDEDiscovery`. Raises `ConfigError` for one that cannot work."""

    family: Literal["physical_full_train", "physical_full_eval_4000"] = "physical_full_train"
    """Which reactions there are; the evaluation family shares no set of terms with the training one, and the pack's index chooses
    its template. The compact protocol has eight equations of its own."""
    min_terms: int = 1
    """Fewest active terms."""
    max_terms: int = 2
    """Most active terms, up to 3 (2 in the compact protocol)."""
    max_turns: int = 6
    """Steps per task, at least 3 (2 in the compact protocol)."""
    point_budget: int = 6
    """Measurements per task, up to 24; a probe of the compact protocol takes 4."""
    kappa_threshold: Positive = 100.0
    """Condition number above which a regression warns."""
    noise_level: NonNegative = 0.002
    """Of measured u (standard deviation); of y a quarter."""
    grid_points: int = 257
    """Of the numerical solution."""
    time_levels: int = 2001
    """Of the numerical solution."""
    world_memory: bool = True
    """Whether samples and finalised equations stay stored for the pack, as in the paper, or go with every task."""
    show_samples: bool = True
    """Whether values are listed when measured (our default) or only by a regression, as in the paper."""
    protocol: Literal["natural", "compact"] = "natural"
    """Sentences for language models (natural) or fused words for tiny policies (compact, a small instance)."""

    @property
    def compact(self) -> bool:
        """Whether worlds are of the small instance, in fused words."""
        return self.protocol == "compact"

    @property
    def name(self) -> str:
        """All that the drawn worlds depend on."""
        drawn = "compact" if self.compact else self.family.removeprefix("physical_full_")
        return (
            f"pde-{drawn}-{self.min_terms}-{self.max_terms}-grid{self.grid_points}x{self.time_levels}"
            f"-noise{self.noise_level:g}"
        )

    def __post_init__(self) -> None:
        compact = self.compact
        fewest, steps = (2, "measure and answer") if compact else (3, "measure, fit and finalise")
        check_between(
            "data.env.max_turns", self.max_turns, fewest, math.inf, f"A task is to {steps}; 6 is the reference's."
        )
        most = 2 if compact else 3
        low, high = self.min_terms, self.max_terms
        check_span("min_terms", low, "max_terms", high, 1, most, "1 and 2 are the reference's for training.")
        if not compact and not eligible(self.family, self.min_terms, self.max_terms):
            sizes = "1-2 (training) or 2-3 terms (evaluation)"
            has = f"a number of terms that {self.family} has; its reactions have {sizes}"
            raise ConfigError("data.env.max_terms", self.max_terms, has, "Use 2 for training, 3 for evaluation.")
        fewest = 4 if compact else 1
        check_between("data.env.point_budget", self.point_budget, fewest, 24, "6 is the reference's.")
        check_between("data.env.grid_points", self.grid_points, 17, 1025, "257 is the reference's.")
        check_between("data.env.time_levels", self.time_levels, 101, 8001, "2001 is the reference's.")
        if compact:
            unused = {"kappa_threshold": self.kappa_threshold, "show_samples": self.show_samples}
            check_unused(PDEParameters, "with protocol=compact", family=self.family, **unused)
