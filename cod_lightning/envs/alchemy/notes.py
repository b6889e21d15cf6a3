"""What can be known of recipes: how it is written down, read back, and demonstrated.

A known recipe is `a + b = c`, a known failure `a + b = nothing`. In sentences a note is a list of what is known; in compact
words it has one word for every pair that may be a recipe, in a fixed order, and `a+b=?` where nothing is known.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cod_lightning.envs.alchemy.plan import Pair, pair_of
from cod_lightning.envs.facts import UNKNOWN
from cod_lightning.envs.players import kept_or_any

Facts = Mapping[Pair, str]
"""What pairs give; an empty text is nothing."""


class _RecipeNotes:
    """How facts about recipes are spelled."""

    nothing: str
    sign: str
    """Between the two inputs, and its spaces."""
    equals: str

    def parse(self, text: str) -> dict[Pair, str]:
        """Facts stated in the text; of two statements about a pair the later one wins, unknown ones say nothing."""
        found: dict[Pair, str] = {}
        for first, second, result in re.findall(
            r"\b([a-z]{1,5}) ?\+ ?([a-z]{1,5}) ?= ?([a-z]{1,7}|0)(?!\w)", text, flags=re.ASCII
        ):
            found[pair_of(first, second)] = "" if result == self.nothing else result
        return found

    def fact(self, pair: Pair, result: str) -> str:
        """One fact."""
        return f"{pair[0]}{self.sign}{pair[1]}{self.equals}{result or self.nothing}"


@dataclass(frozen=True)
class CompactNotes(_RecipeNotes):
    """`a+a=? a+b=k b+b=0`: a word for each slot."""

    slots: tuple[Pair, ...]
    results: tuple[tuple[str, ...], ...]
    """Of each slot the elements that it may give."""
    nothing = "0"
    sign = "+"
    equals = "="

    def write(self, facts: Facts) -> str:
        return " ".join(self.fact(pair, facts.get(pair, UNKNOWN)) for pair in self.slots)

    def noisy(self, facts: Facts, levels: Mapping[str, int], accuracy: float, rng: random.Random) -> Facts:
        """Each slot as the facts have it (unknown where they have none), else any result or unknown."""
        kept: dict[Pair, str] = {}
        for pair, results in zip(self.slots, self.results, strict=True):
            kept |= kept_or_any([pair], facts, accuracy, rng, ["", *results, None])
        return kept

    def junk(self, levels: Mapping[str, int], rng: random.Random) -> Facts:
        return {pair: rng.choice(["", *results]) for pair, results in zip(self.slots, self.results, strict=True)}

    def words(self) -> tuple[str, ...]:
        """Every word of every slot."""
        slots = zip(self.slots, self.results, strict=True)
        return tuple(self.fact(pair, result) for pair, results in slots for result in ("", *results, UNKNOWN))


@dataclass(frozen=True)
class NaturalNotes(_RecipeNotes):
    """A list of known recipes, then of pairs that give nothing."""

    nothing = "nothing"
    sign = " + "
    equals = " = "

    def write(self, facts: Facts) -> str:
        """A context that holds these facts."""
        known = sorted(facts.items(), key=lambda fact: (not fact[1], fact[0]))
        lines = [f"- {self.fact(pair, result)}" for pair, result in known]
        heading = "Recipes found so far, and pairs that give nothing:" if lines else "No recipe is known."
        return "\n".join([heading, *lines])

    def noisy(self, facts: Facts, levels: Mapping[str, int], accuracy: float, rng: random.Random) -> Facts:
        """Each fact kept with that probability, else anything in its place."""
        return dict(fact if rng.random() < accuracy else self._made_up(levels, rng) for fact in facts.items())

    def junk(self, levels: Mapping[str, int], rng: random.Random) -> Facts:
        """Facts made up from nothing but the elements."""
        return dict(self._made_up(levels, rng) for _ in range((len(levels) + 1) // 2))

    @staticmethod
    def _made_up(levels: Mapping[str, int], rng: random.Random) -> tuple[Pair, str]:
        """Any two elements of one tier, and anything of the next tier or nothing."""
        tier = rng.randrange(max(levels.values()))
        inputs = [name for name, level in levels.items() if level == tier]
        above = [name for name, level in levels.items() if level == tier + 1]
        return pair_of(rng.choice(inputs), rng.choice(inputs)), rng.choice(["", *above])
