"""Tasks of alchemy: what one holds, how a pack of them is drawn, and how its recipes change."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from cod_lightning.envs.alchemy.graph import (
    GraphRanges,
    Recipes,
    Shape,
    draw_recipes,
    draw_shape,
    fits_symbols,
    least_stock,
    split_of,
    way_to,
)
from cod_lightning.envs.base import OPENING, Unchanging
from cod_lightning.envs.checks import check_span, check_unused
from cod_lightning.errors import ConfigError, check_between
from cod_lightning.ranges import Count, Share
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Split

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
    repeat: bool
    """Whether the pack has asked for this target before (all others were asked for then)."""
    stock: int
    """Copies of each base element; 0 where nothing is used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlchemyParameters(Unchanging):
    """The parameters of `Alchemy`, by default those of the paper's easy setting, and what is drawn by them.

    Raises `ConfigError` for what cannot work.
    """

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
    max_tier_gap: int = 1
    """How far the lower input may lie below the result; 1 means that recipes never cross tiers."""
    cross_tier_min: float = 0.0
    """Smallest probability that a recipe crosses tiers."""
    cross_tier_max: float = 0.1
    """Largest probability that a recipe crosses tiers."""
    noise_min: float = 0.0
    """Smallest number of decoys per element of a tier in the first round of drawing them."""
    noise_max: float = 0.0
    """Largest such number."""
    noise_chain_depth: int = 2
    """Rounds of decoys, each with half as many as the one before; they may build on one another."""
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

    @property
    def ranges(self) -> GraphRanges:
        """Bounds of what is drawn for a graph."""
        return GraphRanges(
            tiers=(self.tiers_min, self.tiers_max),
            base=(self.base_min, self.base_max),
            shrink=(self.shrink_min, self.shrink_max),
            recipes=(self.recipes_min, self.recipes_max),
            max_tier_gap=self.max_tier_gap,
            cross_tier=(self.cross_tier_min, self.cross_tier_max),
            noise=(self.noise_min, self.noise_max),
            noise_chain_depth=self.noise_chain_depth,
        )

    @property
    def structure(self) -> str:
        """Identity of the graphs, targets and stocks."""
        ranges = self.ranges
        spans = {"t": ranges.tiers, "b": ranges.base, "s": ranges.shrink, "r": ranges.recipes, "x": ranges.cross_tier}
        parts = [f"{key}{low:g}-{high:g}" for key, (low, high) in spans.items()]
        parts.append(f"gap{ranges.max_tier_gap}")
        if ranges.noise[1] > 0:
            parts.append(f"n{ranges.noise[0]:g}-{ranges.noise[1]:g}d{ranges.noise_chain_depth}")
        if self.limited:
            parts.append(f"limited{self.multiplier_min:g}-{self.multiplier_max:g}")
        return "-".join(["alchemy", *parts, f"turns{self.max_turns}", *(["brute"] if self.brute_force else [])])

    @property
    def name(self) -> str:
        """Identity of the tasks."""
        return self.structure + ("-compact" if self.compact else "")

    def __post_init__(self) -> None:
        ranges = self.ranges
        for key, (low, high), least, most in (
            ("tiers", ranges.tiers, 2, 4 if self.limited else 5),
            ("base", ranges.base, 2, 8),
            ("shrink", ranges.shrink, 0.1, 2.0),
            ("recipes", ranges.recipes, 1, 3),
            ("cross_tier", ranges.cross_tier, 0.0, 1.0),
            ("noise", ranges.noise, 0.0, 1.0),
            ("multiplier", (self.multiplier_min, self.multiplier_max), 1.0, 10.0),
        ):
            check_span(f"{key}_min", low, f"{key}_max", high, least, most, "Leave both out.")
        for key, value in (("max_tier_gap", ranges.max_tier_gap), ("noise_chain_depth", ranges.noise_chain_depth)):
            check_between(f"data.env.{key}", value, 1, 5, "Leave it out for the default.")
        if not self.limited:
            multiplier = {"multiplier_min": self.multiplier_min, "multiplier_max": self.multiplier_max}
            check_unused(AlchemyParameters, "with materials=unlimited", **multiplier, end_when_dead=self.end_when_dead)
        if self.compact:
            self.fixed_sizes()

    def fixed_sizes(self) -> tuple[int, ...]:
        """Elements of each tier in compact words. Raises `ConfigError` where they vary, or more than that does."""
        ranges = self.ranges
        spans = {"tiers": ranges.tiers, "base": ranges.base, "shrink": ranges.shrink}
        for key, (low, high) in spans.items():
            if low != high:
                expected = f"{key}_min ({low}), since compact notes have a fixed shape"
                raise ConfigError(f"data.env.{key}_max", high, expected, "Use one value.")
        for key, value, wanted in (
            ("noise_max", ranges.noise[1], 0),
            ("materials", self.materials, "unlimited"),
        ):
            if value != wanted:
                remedy = "Change it, or data.env.protocol to natural."
                raise ConfigError(f"data.env.{key}", value, f"{wanted} in compact words", remedy)
        sizes = ranges.sizes(ranges.tiers[0], ranges.base[0], ranges.shrink[0])
        if not fits_symbols(sizes):
            expected = "at most 4, 4, 3 and 3 elements above"
            raise ConfigError("data.env.shrink_max", ranges.shrink[1], expected, "Lower it.")
        return sizes

    def draw(self, seed: int, split: Split | None, num_tasks: int) -> list[AlchemyTask]:
        """Tasks of one graph of the split (of any, for None), a function of the seed; more of them begin with the same ones."""
        rng, names = random.Random(seed), random.Random(derive_seed(seed, "names"))
        for _ in range(_MOST_DRAWS):
            shape = draw_shape(rng, names, self.ranges, symbols=self.compact)
            recipes = draw_recipes(rng, shape, self.ranges)
            if recipes is None or not any(candidates := self._candidates(recipes, shape)):
                continue
            sequence = target_sequence(random.Random(derive_seed(seed, "targets")), candidates)
            order = list(islice(sequence, max(num_tasks, OPENING)))
            if split in (None, split_of(recipes, [target for target, _ in order[:OPENING]])):
                break
        else:
            has = f"graphs of the split {split} with a target worth asking for; none was found in {_MOST_DRAWS} draws"
            remedy = "Raise it or data.env.max_turns, or allow data.env.brute_force."
            raise ConfigError("data.env.base_min", self.ranges.base[0], has, remedy)
        return [
            AlchemyTask(
                tiers=shape.tiers,
                decoys=shape.decoys,
                recipes=recipes,
                target=target,
                repeat=repeat,
                stock=self._stock(derive_seed(seed, "stock", n), recipes, shape, target),
            )
            for n, (target, repeat) in enumerate(order[:num_tasks])
        ]

    def redraw(self, seed: int, split: Split, tasks: Sequence[AlchemyTask]) -> list[AlchemyTask]:
        """The same tasks with other recipes of the same split.

        Stocks stay where they suffice; where in many draws no recipes were found that they suffice for, they are raised.
        """
        old, rng = tasks[0], random.Random(seed)
        shape = Shape(old.tiers, old.decoys)
        found: tuple[Recipes, Mapping[str, int]] | None = None
        for _ in range(_MOST_DRAWS):
            recipes = draw_recipes(rng, shape, self.ranges)
            opening = [task.target for task in tasks[:OPENING]]
            if recipes is None or set(recipes) == set(old.recipes) or split_of(recipes, opening) is not split:
                continue
            possible = {name for names in self._candidates(recipes, shape) for name in names}
            if not {task.target for task in tasks} <= possible:
                continue
            least = {task.target: self._least(recipes, shape, task.target) for task in tasks}
            enough = all(least[task.target] <= task.stock for task in tasks)
            found = (recipes, least) if enough or found is None else found
            if enough:
                break
        if found is None:
            expected = "enough for the same targets by other recipes"
            raise ConfigError("data.env.max_turns", self.max_turns, expected, "Raise it.")
        recipes, least = found
        return [replace(task, recipes=recipes, stock=max(task.stock, least[task.target])) for task in tasks]

    def _candidates(self, recipes: Recipes, shape: Shape) -> tuple[tuple[str, ...], ...]:
        return possible_targets(
            recipes, shape, max_turns=self.max_turns, consume=self.limited, brute_force=self.brute_force
        )

    def _least(self, recipes: Recipes, shape: Shape, target: str) -> int:
        return least_stock(recipes, shape.tiers, target, self.max_turns) if self.limited else 0

    def _stock(self, seed: int, recipes: Recipes, shape: Shape, target: str) -> int:
        if not self.limited:
            return 0
        return stock_for(
            random.Random(seed), self._least(recipes, shape, target), (self.multiplier_min, self.multiplier_max)
        )
