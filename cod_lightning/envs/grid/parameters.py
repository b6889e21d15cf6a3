"""What a configuration of the grid consists of, checked at once."""

from dataclasses import dataclass
from typing import Literal

from cod_lightning.envs.base import Unchanging
from cod_lightning.envs.checks import check_span, check_unused
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Count, Natural

MOST_SIDE = 16
MOST_COMPACT_SIDE = 5


@dataclass(frozen=True, kw_only=True)
class GridParameters(Unchanging):
    """The parameters of `GridNavigation`. Raises `ConfigError` for one that cannot work."""

    side_min: int = 8
    """Smallest side of a map, 3 to 16."""
    side_max: int = 12
    """Largest side of a map, 3 to 16; with compact words 3 to 5, and equal to side_min."""
    hills: Count = 4
    """Hills of a map; with compact words there are none."""
    scale_min: float = 0.15
    """Smallest width of a hill, as a share of the side."""
    scale_max: float = 0.45
    """Largest width of a hill, as a share of the side."""
    rounds_min: int = 3
    """Fewest moves of a task."""
    rounds_max: int = 5
    """Most moves of a task."""
    reveal_radius: Natural = 1
    """Entering a cell shows costs so many rows and columns away."""
    world_memory: bool = True
    """Whether the observed map stays in later tasks of a pack, as in the paper, or every task starts with an empty one, so that
    only the context can carry it."""
    protocol: Literal["natural", "compact"] = "natural"
    """Sentences for language models, and costs as a sum of smooth hills, as in the paper (natural), or fused words for tiny
    policies, and lanes: all cells of a row cost the same, 0, 50 or 99 (compact)."""

    @property
    def lanes(self) -> bool:
        """True if all cells of a row cost the same."""
        return self.protocol == "compact"

    @property
    def name(self) -> str:
        """All that the drawn worlds depend on."""
        kind = "lanes-levels3" if self.lanes else f"hills{self.hills}-s{self.scale_min:g}-{self.scale_max:g}"
        sides, rounds = f"{self.side_min}-{self.side_max}", f"{self.rounds_min}-{self.rounds_max}"
        return f"grid_navigation-{sides}-{kind}-rounds{rounds}"

    def __post_init__(self) -> None:
        check_span("side_min", self.side_min, "side_max", self.side_max, 3, MOST_SIDE, "8 to 12 are the paper's.")
        low, high = self.scale_min, self.scale_max
        check_span("scale_min", low, "scale_max", high, 0.01, 10, "0.15 to 0.45 are the paper's.")
        check_span("rounds_min", self.rounds_min, "rounds_max", self.rounds_max, 1, 50, "3 to 5 are the paper's.")
        if self.lanes:
            scales = {"scale_min": self.scale_min, "scale_max": self.scale_max}
            check_unused(GridParameters, "with protocol=compact", hills=self.hills, **scales)
            if self.side_max > MOST_COMPACT_SIDE or self.side_min != self.side_max:
                expected = f"equal to side_min ({self.side_min}) and at most {MOST_COMPACT_SIDE}, for compact words"
                raise ConfigError("data.env.side_max", self.side_max, expected, "Use 4 for both.")
