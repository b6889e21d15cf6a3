"""Parameters of the worlds that the tests play."""

from pathlib import Path
from typing import Any

import yaml


def shipped(name: str) -> dict[str, Any]:
    """Parameters of a shipped config."""
    return yaml.safe_load((Path(__file__).parents[3] / "configs" / "env" / f"{name}.yaml").read_text())["init_args"]


HARD = shipped("alchemy_hard")
SMALL = shipped("alchemy_compact")
COMPACT = {**SMALL, "tiers_min": 3, "tiers_max": 3, "shrink_min": 0.8, "shrink_max": 0.8, "max_turns": 4}
"""Two tiers above the base elements: plans of two steps."""
DEEP = {
    **COMPACT,
    "tiers_min": 4,
    "tiers_max": 4,
    "max_tier_gap": 2,
    "cross_tier_max": 0.5,
    "recipes_max": 2,
    "max_turns": 9,
}
MANY = {"shrink_min": 0.7, "shrink_max": 1.0, "max_tier_gap": 2, "cross_tier_max": 0.3, "brute_force": False}
"""More elements, crossing recipes, and no target that six pairs must find."""
