"""What a configuration of alchemy consists of, checked at once."""

from dataclasses import dataclass
from typing import Any, Literal

from cod_lightning.envs.base import Unchanging
from cod_lightning.envs.checks import check_span, check_unused
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Count, Share

SYMBOLS = ("abcdefgh", "klmn", "pqrs", "uvw", "xyz")
"""Names of elements in the compact protocol, by tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlchemyParameters(Unchanging):
    """The parameters of `Alchemy`, by default those of the paper's easy setting. Raises `ConfigError` for what cannot work."""

    tiers_min: int = 3
    """Fewest tiers, the base elements' included, 2 to 5 (with limited materials 2 to 4)."""
    tiers_max: int = 4
    """Most tiers."""
    base_min: int = 3
    """Fewest base elements, 2 to 8."""
    base_max: int = 4
    """Most base elements."""
    shrink_min: float = 0.4
    """Smallest size of a tier relative to the one below."""
    shrink_max: float = 0.6
    """Largest size of a tier relative to the one below, at most 2."""
    recipes_min: int = 1
    """Fewest recipes of an element above tier 0, 1 to 3; decoys have one."""
    recipes_max: int = 1
    """Most recipes of an element."""
    max_tier_gap: Count = 1
    """How far the lower input may lie below the result; 1 means that recipes never cross tiers."""
    cross_tier_min: float = 0.0
    """Smallest probability that a recipe crosses tiers."""
    cross_tier_max: float = 0.1
    """Largest probability that a recipe crosses tiers."""
    noise_max: Share = 0.0
    """Most decoys per element of a tier in the first round of drawing them; a second one draws half as many, which may build on
    those."""
    max_turns: Count = 8
    """Rounds per task. Elements that need more are never asked for."""
    materials: Literal["unlimited", "limited"] = "unlimited"
    """Whether an attempt uses up one copy of each input (limited) or nothing (unlimited)."""
    multiplier_min: float = 1.5
    """Smallest stock of a base element relative to the least that will do, with limited materials."""
    multiplier_max: float = 2.0
    """Largest such stock."""
    end_when_dead: bool = True
    """Whether a task ends as soon as the target cannot be made from what is left; else only when no pair is left, as in the
    paper."""
    brute_force: bool = True
    """Whether elements may be asked for that trying every pair of base elements must find in time, as in the paper."""
    length_penalty: Share = 0.1
    """A success with t turns is worth 1 - length_penalty * t / max_turns."""
    protocol: Literal["natural", "compact"] = "natural"
    """Sentences for language models (natural) or fused words for tiny policies (compact), which need fixed sizes, no decoys and
    unlimited materials."""

    @property
    def limited(self) -> bool:
        """Whether attempts use materials up."""
        return self.materials == "limited"

    @property
    def single(self) -> bool:
        """Whether each element has exactly one recipe."""
        return self.recipes_max == 1

    @property
    def compact(self) -> bool:
        """Whether there are fused words, and fixed letters instead of random names."""
        return self.protocol == "compact"

    def span(self, key: str) -> tuple[Any, Any]:
        """Bounds of what is drawn, both ends included."""
        return getattr(self, f"{key}_min"), getattr(self, f"{key}_max")

    @staticmethod
    def sizes(tiers: int, base: int, shrink: float) -> tuple[int, ...]:
        """Elements of each tier without decoys: each at least 1, rounded half to even."""
        sizes = [base]
        for _ in range(tiers - 1):
            sizes.append(max(1, round(sizes[-1] * shrink)))
        return tuple(sizes)

    @property
    def structure(self) -> str:
        """Identity of the graphs, targets and stocks."""
        spans = {"t": "tiers", "b": "base", "s": "shrink", "r": "recipes", "x": "cross_tier"}
        parts = ["{}{:g}-{:g}".format(short, *self.span(key)) for short, key in spans.items()]
        parts.append(f"gap{self.max_tier_gap}")
        if self.noise_max > 0:
            parts.append(f"n0-{self.noise_max:g}d2")
        if self.limited:
            parts.append(f"limited{self.multiplier_min:g}-{self.multiplier_max:g}")
        return "-".join(["alchemy", *parts, f"turns{self.max_turns}", *(["brute"] if self.brute_force else [])])

    @property
    def name(self) -> str:
        """Identity of the tasks."""
        return self.structure + ("-compact" if self.compact else "")

    def __post_init__(self) -> None:
        for key, least, most in (
            ("tiers", 2, 4 if self.limited else 5),
            ("base", 2, 8),
            ("shrink", 0.1, 2.0),
            ("recipes", 1, 3),
            ("cross_tier", 0.0, 1.0),
            ("multiplier", 1.0, 10.0),
        ):
            low, high = self.span(key)
            check_span(f"{key}_min", low, f"{key}_max", high, least, most, "Leave both out.")
        if not self.limited:
            multiplier = {"multiplier_min": self.multiplier_min, "multiplier_max": self.multiplier_max}
            check_unused(AlchemyParameters, "with materials=unlimited", **multiplier, end_when_dead=self.end_when_dead)
        if self.compact:
            self.fixed_sizes()

    def fixed_sizes(self) -> tuple[int, ...]:
        """Elements of each tier in compact words. Raises `ConfigError` where they vary, or more than that does."""
        for key in ("tiers", "base", "shrink"):
            low, high = self.span(key)
            if low != high:
                expected = f"{key}_min ({low}), since compact notes have a fixed shape"
                raise ConfigError(f"data.env.{key}_max", high, expected, "Use one value.")
        for key, value, wanted in (
            ("noise_max", self.noise_max, 0),
            ("materials", self.materials, "unlimited"),
        ):
            if value != wanted:
                remedy = "Change it, or data.env.protocol to natural."
                raise ConfigError(f"data.env.{key}", value, f"{wanted} in compact words", remedy)
        sizes = self.sizes(self.tiers_min, self.base_min, self.shrink_min)
        if any(size > len(letters) for size, letters in zip(sizes, SYMBOLS, strict=False)):
            expected = "at most 4, 4, 3 and 3 elements above"
            raise ConfigError("data.env.shrink_max", self.shrink_max, expected, "Lower it.")
        return sizes
