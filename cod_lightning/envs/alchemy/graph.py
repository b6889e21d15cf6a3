"""Recipe graphs: drawing them, what a target needs, and the split that each belongs to."""

import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cod_lightning.envs.alchemy.parameters import SYMBOLS, AlchemyParameters
from cod_lightning.envs.alchemy.plan import Pair, pair_of, shortest_plan, ways_of
from cod_lightning.envs.base import split_of_text
from cod_lightning.types import Split

_TRIES = 50


@dataclass(frozen=True, slots=True)
class Shape:
    """What shows of a graph: its elements. Which of them are decoys does not show."""

    tiers: tuple[tuple[str, ...], ...]
    """Names by tier, each tier in alphabetical order, decoys among them."""
    decoys: tuple[tuple[str, ...], ...]
    """By round: a decoy may be an ingredient of later ones only."""


Recipes = tuple[tuple[str, str, str], ...]
"""(first, second, result), the inputs in alphabetical order."""


def draw_shape(rng: random.Random, names: random.Random, p: AlchemyParameters) -> Shape:
    """Tiers, their elements and decoys."""
    tiers, base = rng.randint(*p.span("tiers")), rng.randint(*p.span("base"))
    sizes = p.sizes(tiers, base, rng.uniform(*p.span("shrink")))
    noise = rng.uniform(0.0, p.noise_max)
    by_round = [[0, *(round(size * share) for size in sizes[1:])] for share in (noise, noise / 2)]
    totals = [size + sum(extra) for size, *extra in zip(sizes, *by_round, strict=True)]
    named = fixed_names(totals) if p.compact else _random_names(names, totals)
    decoys: list[list[str]] = [[] for _ in by_round]
    for tier, mine in enumerate(named):
        chosen = iter(rng.sample(mine, sum(counts[tier] for counts in by_round)))
        for counts, decoy_round in zip(by_round, decoys, strict=True):
            decoy_round.extend(next(chosen) for _ in range(counts[tier]))
    return Shape(named, tuple(map(tuple, decoys)))


def draw_recipes(rng: random.Random, shape: Shape, p: AlchemyParameters) -> Recipes | None:
    """Recipes for every element above tier 0; None where an element found no unused pair."""
    hidden = {name for decoys in shape.decoys for name in decoys}
    pool = [[name for name in tier if name not in hidden] for tier in shape.tiers]
    cross = rng.uniform(*p.span("cross_tier"))
    book: dict[Pair, str] = {}
    made = [[(tier, name) for tier, names in enumerate(pool) for name in names if tier]]
    level = levels(shape.tiers)
    made += [[(level[name], name) for name in decoys] for decoys in shape.decoys]
    for stage, elements in enumerate(made):
        for tier, name in elements:
            for n in range(rng.randint(*p.span("recipes")) if stage == 0 else 1):
                pair = _unused_pair(rng, pool, tier, cross, p.max_tier_gap, book)
                if pair is not None:
                    book[pair] = name
                elif n == 0:
                    return None
            if stage:
                pool[tier].append(name)
    return tuple((*pair, name) for pair, name in book.items())


def _unused_pair(
    rng: random.Random, pool: Sequence[Sequence[str]], tier: int, cross: float, gap: int, book: Mapping[Pair, str]
) -> Pair | None:
    """One input of the tier just below, the other of the same tier or, crossing, of a lower one."""
    lower = [name for names in pool[max(0, tier - gap) : tier - 1] for name in names]
    for _ in range(_TRIES):
        first = rng.choice(pool[tier - 1])
        second = rng.choice(lower if lower and rng.random() < cross else pool[tier - 1])
        if (pair := pair_of(first, second)) not in book:
            return pair
    return None


def fixed_names(sizes: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Letters whose alphabetical order is the order of tiers.

    >>> fixed_names((3, 2))
    (('a', 'b', 'c'), ('k', 'l'))
    """
    return tuple(tuple(letters[:size]) for letters, size in zip(SYMBOLS, sizes, strict=False))


def slots_of(tiers: Sequence[Sequence[str]], gap: int, cross: bool) -> tuple[Pair, ...]:
    """All pairs that may be a recipe: of one tier, or crossing tiers no further than `gap` below the result.

    >>> slots_of((("a", "b"), ("k",), ("p",)), 2, True)
    (('a', 'a'), ('a', 'b'), ('b', 'b'), ('a', 'k'), ('b', 'k'), ('k', 'k'))
    """
    found: list[Pair] = []
    for tier in range(len(tiers) - 1):
        for low in range(max(0, tier + 1 - gap) if cross else tier, tier + 1):
            found += [(a, b) for a in tiers[low] for b in tiers[tier] if low < tier or a <= b]
    return tuple(found)


def levels(tiers: Sequence[Sequence[str]]) -> dict[str, int]:
    """The tier of each element."""
    return {name: tier for tier, names in enumerate(tiers) for name in names}


@lru_cache(maxsize=4_096)
def book_of(recipes: Recipes) -> Mapping[Pair, str]:
    """Results by pair."""
    return {(first, second): result for first, second, result in recipes}


def way_to(
    recipes: Recipes, tiers: Sequence[Sequence[str]], target: str, have: Mapping[str, int], *, consume: bool, most: int
) -> tuple[Pair, ...] | None:
    """The shortest plan by the true recipes."""
    level = levels(tiers)
    return shortest_plan(ways_of(book_of(recipes), level), level, {target: 1}, have, consume=consume, most=most)


def least_stock(recipes: Recipes, tiers: Sequence[Sequence[str]], target: str, most: int) -> int:
    """Fewest copies of every base element with which the target can be made in `most` attempts; 0 if no number will do."""
    enough = 2 ** (len(tiers) - 1)
    for copies in range(1, enough + 1):
        if way_to(recipes, tiers, target, dict.fromkeys(tiers[0], copies), consume=True, most=most) is not None:
            return copies
    return 0


def split_of(recipes: Recipes, targets: Sequence[str]) -> Split:
    """The one split of a pack with these recipes and these first targets.

    Small graphs are few. Were they themselves held out, a player without memory could learn in training what is never so in tests.
    """
    lines = sorted("+".join(sorted((a, b))) + "=" + c for a, b, c in recipes)
    return split_of_text(" ".join([*lines, "|", *targets]))


def _random_names(rng: random.Random, sizes: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Different names of 3 to 5 letters, sorted within each tier."""
    used: set[str] = set()
    named = []
    for size in sizes:
        mine: set[str] = set()
        while len(mine) < size:
            name = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 5)))
            if name not in used:
                used.add(name)
                mine.add(name)
        named.append(tuple(sorted(mine)))
    return tuple(named)
