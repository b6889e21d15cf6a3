"""Tasks of alchemy: what one holds, how a pack of them is drawn, and how its recipes change."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from cod_lightning.envs.alchemy.graph import Recipes, Shape, draw_recipes, draw_shape, least_stock, split_of, way_to
from cod_lightning.envs.alchemy.parameters import AlchemyParameters
from cod_lightning.envs.base import OPENING
from cod_lightning.envs.checks import exhausted
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Split

_BLOCK = 8
"""Targets that are shuffled together, so that within so many positions no tier comes earlier than another on average."""


def possible_targets(recipes: Recipes, shape: Shape, parameters: AlchemyParameters) -> tuple[tuple[str, ...], ...]:
    """Elements by tier that may be asked for: no base elements, no decoys, none whose shortest plan has too many attempts.

    Without `brute_force` also none that trying every pair of base elements must find in time (tier 1 with few base
    elements); where materials are used up, they forbid that anyway.
    """
    base, max_turns = len(shape.tiers[0]), parameters.max_turns
    in_time = base * (base + 1) // 2 <= max_turns
    lowest = 2 if in_time and not parameters.limited and not parameters.brute_force else 1
    hidden = {name for decoys in shape.decoys for name in decoys}

    def possible(name: str) -> bool:
        if parameters.limited:
            return least_stock(recipes, shape.tiers, name, max_turns) > 0
        have = dict.fromkeys(shape.tiers[0], 1)
        return way_to(recipes, shape.tiers, name, have, consume=False, most=max_turns) is not None

    return tuple(
        tuple(name for name in names if tier >= lowest and name not in hidden and possible(name))
        for tier, names in enumerate(shape.tiers)
    )


def target_sequence(rng: random.Random, candidates: Sequence[Sequence[str]]) -> Iterator[str]:
    """Endless targets: all candidates once before any of them comes again.

    A tier is drawn with weight tier + 1 among those that are not used up, then one of its elements; each run of 8 is then
    shuffled. So a pack does not depend on how many of its tasks are played, and its first 8 positions are alike.
    """
    while True:
        left = [list(names) for names in candidates]
        order: list[str] = []
        while any(left):
            open_tiers = [tier for tier, names in enumerate(left) if names]
            (tier,) = rng.choices(open_tiers, weights=[tier + 1 for tier in open_tiers])
            order.append(left[tier].pop(rng.randrange(len(left[tier]))))
        for start in range(0, len(order), _BLOCK):
            block = order[start : start + _BLOCK]
            rng.shuffle(block)
            yield from block


def stock_for(rng: random.Random, least: int, multiplier: tuple[float, float]) -> int:
    """Copies of each base element: the least number that will do, times a drawn factor, rounded half up.

    >>> stock_for(random.Random(0), 3, (1.5, 1.5))
    5
    """
    return max(least, int(least * rng.uniform(*multiplier) + 0.5))


_MOST_DRAWS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class AlchemyTask:
    """One target, and the recipes."""

    tiers: tuple[tuple[str, ...], ...]
    """Names by tier, in alphabetical order."""
    decoys: tuple[tuple[str, ...], ...]
    """Elements that lead to no target, by round of their drawing."""
    recipes: Recipes
    target: str
    stock: int
    """Copies of each base element; 0 where nothing is used up."""


def draw_tasks(parameters: AlchemyParameters, seed: int, split: Split, num_tasks: int) -> list[AlchemyTask]:
    """Tasks of one graph of the split, a function of the seed; more of them begin with the same ones."""
    rng, names = random.Random(seed), random.Random(derive_seed(seed, "names"))
    for _ in range(_MOST_DRAWS):
        shape = draw_shape(rng, names, parameters)
        recipes = draw_recipes(rng, shape, parameters)
        if recipes is None or not any(candidates := possible_targets(recipes, shape, parameters)):
            continue
        sequence = target_sequence(random.Random(derive_seed(seed, "targets")), candidates)
        order = list(islice(sequence, max(num_tasks, OPENING)))
        if split_of(recipes, order[:OPENING]) is split:
            break
    else:
        wanted = f"graphs of the split {split} with a target worth asking for"
        remedy = "Raise it or data.env.max_turns, or allow data.env.brute_force."
        raise exhausted("base_min", parameters.base_min, wanted, _MOST_DRAWS, remedy)
    return [
        AlchemyTask(
            tiers=shape.tiers,
            decoys=shape.decoys,
            recipes=recipes,
            target=target,
            stock=stock_for(
                random.Random(derive_seed(seed, "stock", n)),
                _least(parameters, recipes, shape, target),
                parameters.span("multiplier"),
            ),
        )
        for n, target in enumerate(order[:num_tasks])
    ]


def redrawn(parameters: AlchemyParameters, seed: int, split: Split, tasks: Sequence[AlchemyTask]) -> list[AlchemyTask]:
    """The same tasks with other recipes of the same split.

    Stocks stay where they suffice; where in many draws no recipes were found that they suffice for, they are raised.
    """
    old, rng = tasks[0], random.Random(seed)
    shape = Shape(old.tiers, old.decoys)
    found: tuple[Recipes, Mapping[str, int]] | None = None
    for _ in range(_MOST_DRAWS):
        recipes = draw_recipes(rng, shape, parameters)
        opening = [task.target for task in tasks[:OPENING]]
        if recipes is None or set(recipes) == set(old.recipes) or split_of(recipes, opening) is not split:
            continue
        possible = {name for names in possible_targets(recipes, shape, parameters) for name in names}
        if not {task.target for task in tasks} <= possible:
            continue
        least = {task.target: _least(parameters, recipes, shape, task.target) for task in tasks}
        enough = all(least[task.target] <= task.stock for task in tasks)
        found = (recipes, least) if enough or found is None else found
        if enough:
            break
    if found is None:
        wanted = "enough for the same targets by other recipes"
        raise exhausted("max_turns", parameters.max_turns, wanted, _MOST_DRAWS, "Raise it.")
    recipes, least = found
    return [replace(task, recipes=recipes, stock=max(task.stock, least[task.target])) for task in tasks]


def _least(parameters: AlchemyParameters, recipes: Recipes, shape: Shape, target: str) -> int:
    return least_stock(recipes, shape.tiers, target, parameters.max_turns) if parameters.limited else 0
