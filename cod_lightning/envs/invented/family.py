"""What a family of rules says of itself: sizes, roles of names, a hidden table, tasks, and what facts imply."""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar

from cod_lightning.envs.invented.rule import Fact, Goal, Row, Rule, way

Sizes = tuple[int, ...]


class Family(ABC):
    """A family of hidden rules; one of its sizes makes a kind of domain, such as `lookup-4-4`."""

    name: ClassVar[str]
    sizes: ClassVar[tuple[Sizes, ...]]
    """Those that ship."""

    @abstractmethod
    def roles(self, kind: str, sizes: Sizes, names: Iterator[str]) -> Rule:
        """A rule of these sizes without its table; names are taken in order."""

    @abstractmethod
    def table(self, rule: Rule, rng: random.Random) -> tuple[Row, ...]:
        """A hidden table for these roles."""

    @abstractmethod
    def task(self, rule: Rule, rng: random.Random) -> Goal:
        """A task that can be solved."""

    def fits(self, rule: Rule, goal: Goal) -> bool:
        """Whether a task of another table is one of this table, too."""
        return bool(way(rule.facts, rule.states, goal, goal.start, goal.turns))

    @abstractmethod
    def odds(self, rule: Rule, facts: Sequence[Fact], goal: Goal, here: str, left: int) -> dict[str, float]:
        """For each action of the menu, how likely the task is solved from `here` by it, now or in the `left` turns that remain with
        it, as far as these facts tell; `rule` is read for its roles only."""


def take(names: Iterator[str], count: int) -> tuple[str, ...]:
    """The next names."""
    return tuple(islice(names, count))


def shuffled(names: Sequence[str], rng: random.Random) -> tuple[str, ...]:
    """All of them in random order."""
    return tuple(rng.sample(names, len(names)))


def spread(values: Sequence[str], count: int, rng: random.Random) -> list[str]:
    """`count` of the values in random order, each about equally often.

    >>> sorted(spread(("a", "b"), 4, random.Random(0)))
    ['a', 'a', 'b', 'b']
    """
    drawn = [values[i % len(values)] for i in range(count)]
    rng.shuffle(drawn)
    return drawn


def still_there(rule: Rule, count: int, seen: Sequence[str]) -> Counter[str]:
    """How often each result is still to come, where `spread` drew `count` of them and these were seen."""
    return Counter(rule.results[i % len(rule.results)] for i in range(count)) - Counter(seen)
