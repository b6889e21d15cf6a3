"""Families whose states are their actions: pairs that combine, a hidden order, forbidden pairs."""

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, permutations

from cod_lightning.envs.invented.family import Family, Sizes, shuffled, spread, still_there, take
from cod_lightning.envs.invented.rule import Fact, Goal, Row, Rule


class Pairs(Family):
    """A relation of things: what two of them give, in either order. Sizes: things, results."""

    def roles(self, kind: str, sizes: Sizes, names: Iterator[str]) -> Rule:
        things, results = take(names, sizes[0]), take(names, sizes[1])
        return Rule(kind=kind, states=things, actions=things, results=results)

    @staticmethod
    def both_ways(results: dict[frozenset[str], str], things: Sequence[str]) -> tuple[Row, ...]:
        """The table of a relation that does not care for order."""
        return tuple((a, b, results[frozenset((a, b))], a) for a in things for b in things if a != b)

    def task(self, rule: Rule, rng: random.Random) -> Goal:
        """One turn to choose, of two or three, the only action with the first result."""
        right, wrong = (
            {s: [a for a in rule.actions if a != s and rule.effects[s, a][0] == result] for s in rule.states}
            for result in rule.results
        )
        here = rng.choice([state for state in rule.states if right[state] and wrong[state]])
        menu = [rng.choice(right[here]), *rng.sample(wrong[here], min(2, len(wrong[here])))]
        return Goal(here, rule.results[0], shuffled(menu, rng), 1)

    def fits(self, rule: Rule, goal: Goal) -> bool:
        """Where several actions of the menu were right, it would be easier."""
        return sum(rule.effects[goal.start, action][0] == goal.want for action in goal.menu) == 1

    @staticmethod
    def known(facts: Sequence[Fact]) -> dict[frozenset[str], str]:
        """What pairs are known to give."""
        return {frozenset((state, action)): result for state, result, action in facts}


class Composition(Pairs):
    """Two things combine to a product, in either order, and each product is made of about equally many pairs."""

    name = "composition"
    sizes = ((4, 3), (5, 5), (5, 3), (5, 4), (6, 5))

    def table(self, rule: Rule, rng: random.Random) -> tuple[Row, ...]:
        pairs = list(map(frozenset, combinations(rule.states, 2)))
        return self.both_ways(dict(zip(pairs, spread(rule.results, len(pairs), rng), strict=True)), rule.states)

    def task(self, rule: Rule, rng: random.Random) -> Goal:
        here = rng.choice(rule.states)
        menu = tuple(a for a in rule.actions if a != here)
        made = [rule.effects[here, a][0] for a in menu]
        want = rng.choice([result for result in rule.results if result in made])
        return Goal(here, want, shuffled(menu, rng), 2 if len(menu) > 3 else 1)

    fits = Family.fits

    def odds(self, rule: Rule, facts: Sequence[Fact], goal: Goal, here: str, left: int) -> dict[str, float]:
        known = self.known(facts)
        pairs = len(rule.states) * (len(rule.states) - 1) // 2
        there = still_there(rule, pairs, list(known.values()))[goal.want] / max(1, pairs - len(known))
        of = {a: known.get(frozenset((here, a))) for a in goal.menu}
        return {a: there if given is None else float(given == goal.want) for a, given in of.items()}


class Forbidden(Pairs):
    """Half of the pairs must not meet: one of them loses the task at once. Sizes: things, results (allowed, forbidden)."""

    name = "forbidden"
    sizes = ((4, 2), (5, 2))

    def roles(self, kind: str, sizes: Sizes, names: Iterator[str]) -> Rule:
        rule = super().roles(kind, sizes, names)
        return Rule(kind=kind, states=rule.states, actions=rule.actions, results=rule.results, ends=rule.results[1:])

    def table(self, rule: Rule, rng: random.Random) -> tuple[Row, ...]:
        while True:
            pairs = list(map(frozenset, combinations(rule.states, 2)))
            drawn = dict(zip(pairs, spread(rule.results, len(pairs), rng), strict=True))
            rows = self.both_ways(drawn, rule.states)
            if any(len({row[2] for row in rows if row[0] == state}) == 2 for state in rule.states):
                return rows

    def odds(self, rule: Rule, facts: Sequence[Fact], goal: Goal, here: str, left: int) -> dict[str, float]:
        known = self.known(facts)
        of = {a: known.get(frozenset((here, a))) for a in goal.menu}
        if rule.results[0] in of.values():
            return {a: float(given == rule.results[0]) for a, given in of.items()}
        open_ = sum(given is None for given in of.values())
        return {a: float(given is None) / max(1, open_) for a, given in of.items()}


class HiddenOrder(Pairs):
    """Things have a hidden order; of two, the action lies above the state or below. Sizes: things, results (above, below)."""

    name = "order"
    sizes = ((4, 2), (5, 2), (6, 2))

    def table(self, rule: Rule, rng: random.Random) -> tuple[Row, ...]:
        rank = {thing: i for i, thing in enumerate(rng.sample(rule.states, len(rule.states)))}
        above, below = rule.results
        return tuple(
            (a, b, above if rank[b] > rank[a] else below, a) for a in rule.states for b in rule.states if a != b
        )

    def odds(self, rule: Rule, facts: Sequence[Fact], goal: Goal, here: str, left: int) -> dict[str, float]:
        """Of all orders that the facts and the menu leave, the share in which it lies above."""
        places = {thing: i for i, thing in enumerate(rule.states)}
        pairs = [(s, a, r) for s, r, a in facts if s in places and a in places and r in rule.results]
        ups = frozenset((places[s], places[a]) if r == rule.results[0] else (places[a], places[s]) for s, a, r in pairs)
        shares = _above(len(places), ups, places[here], tuple(places[a] for a in goal.menu))
        return dict(zip(goal.menu, shares, strict=True))


@lru_cache(maxsize=20_000)
def _above(count: int, ups: frozenset[tuple[int, int]], here: int, menu: tuple[int, ...]) -> tuple[float, ...]:
    """Of the orders of `count` things with b above a for every (a, b) and just one of the menu above `here`: the share of each."""
    found = [0] * len(menu)
    for rank in permutations(range(count)):
        over = [m for m, thing in enumerate(menu) if rank[thing] > rank[here]]
        if len(over) == 1 and all(rank[a] < rank[b] for a, b in ups):
            found[over[0]] += 1
    total = sum(found)
    return tuple(f / total if total else 1 / len(menu) for f in found)
