"""Parameters of the worlds that the tests play."""

COMPACT = {
    "tiers_min": 3,
    "tiers_max": 3,
    "base_min": 3,
    "base_max": 3,
    "shrink_min": 0.8,
    "shrink_max": 0.8,
    "max_tier_gap": 1,
    "cross_tier_max": 0.0,
    "brute_force": False,
    "max_turns": 4,
    "protocol": "compact",
}
"""Two tiers above the base elements: plans of two steps."""
SMALL = {**COMPACT, "tiers_min": 2, "tiers_max": 2, "shrink_min": 1.34, "shrink_max": 1.34, "max_turns": 3}
"""As in configs/env/alchemy_compact.yaml."""
DEEP = {
    **COMPACT,
    "tiers_min": 4,
    "tiers_max": 4,
    "max_tier_gap": 2,
    "cross_tier_max": 0.5,
    "recipes_max": 2,
    "max_turns": 9,
}
HARD = {
    "max_turns": 15,
    "materials": "limited",
    "base_min": 4,
    "base_max": 6,
    "shrink_min": 0.4,
    "shrink_max": 0.8,
    "recipes_max": 2,
    "cross_tier_max": 0.05,
    "noise_max": 0.3,
    "end_when_dead": False,
}
"""As in configs/env/alchemy_hard.yaml."""
MANY = {"shrink_min": 0.7, "shrink_max": 1.0, "max_tier_gap": 2, "cross_tier_max": 0.3, "brute_force": False}
"""More elements, crossing recipes, and no target that six pairs must find."""
