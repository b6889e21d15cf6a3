"""Targets of a pack: which elements may be asked for, and in what order."""

import itertools
import random
from collections.abc import Iterator, Sequence

from cod_lightning.envs.alchemy.graph import Recipes, Shape, least_stock, way_to

_BLOCK = 8
"""Targets that are shuffled together, so that within so many positions no tier comes earlier than another on average."""


def possible_targets(
    recipes: Recipes, shape: Shape, *, max_turns: int, consume: bool, brute_force: bool
) -> tuple[tuple[str, ...], ...]:
    """Elements by tier that may be asked for: no base elements, no decoys, none whose shortest plan has too many attempts.

    Without `brute_force` also none that trying every pair of base elements must find in time (tier 1 with few base
    elements); where materials are used up, they forbid that anyway.
    """
    base = len(shape.tiers[0])
    lowest = 2 if not consume and not brute_force and base * (base + 1) // 2 <= max_turns else 1
    hidden = {name for decoys in shape.decoys for name in decoys}

    def possible(name: str) -> bool:
        if consume:
            return least_stock(recipes, shape.tiers, name, max_turns) > 0
        have = dict.fromkeys(shape.tiers[0], 1)
        return way_to(recipes, shape.tiers, name, have, consume=False, most=max_turns) is not None

    return tuple(
        tuple(name for name in names if tier >= lowest and name not in hidden and possible(name))
        for tier, names in enumerate(shape.tiers)
    )


def target_sequence(rng: random.Random, candidates: Sequence[Sequence[str]]) -> Iterator[tuple[str, bool]]:
    """Endless (target, whether it was asked before): all candidates once before any of them comes again.

    A tier is drawn with weight tier + 1 among those that are not used up, then one of its elements; each run of 8 is then
    shuffled. So a pack does not depend on how many of its tasks are played, and its first 8 positions are alike.
    """
    for repeat in itertools.chain([False], itertools.repeat(True)):
        left = [list(names) for names in candidates]
        order: list[str] = []
        while any(left):
            open_tiers = [tier for tier, names in enumerate(left) if names]
            (tier,) = rng.choices(open_tiers, weights=[tier + 1 for tier in open_tiers])
            order.append(left[tier].pop(rng.randrange(len(left[tier]))))
        for start in range(0, len(order), _BLOCK):
            block = order[start : start + _BLOCK]
            rng.shuffle(block)
            yield from ((target, repeat) for target in block)


def stock_for(rng: random.Random, least: int, multiplier: tuple[float, float]) -> int:
    """Copies of each base element: the least number that will do, times a drawn factor, rounded half up.

    >>> stock_for(random.Random(0), 3, (1.5, 1.5))
    5
    """
    return max(least, int(least * rng.uniform(*multiplier) + 0.5))
