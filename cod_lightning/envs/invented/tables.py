"""Families whose states stay: look-up, offset on a ring, locks and keys, hidden thresholds."""

import random
from collections.abc import Iterator, Sequence

from cod_lightning.envs.invented.family import Family, Sizes, shuffled, spread, still_there, take
from cod_lightning.envs.invented.rule import Fact, Goal, Row, Rule


class Lookup(Family):
    """Each action gives a value, each value comes of equally many actions. Sizes: actions, values."""

    name = "lookup"
    sizes = ((4, 4), (5, 5), (6, 6), (6, 3), (4, 2), (8, 4))

    def roles(self, kind: str, sizes: Sizes, names: Iterator[str]) -> Rule:
        actions, values = sizes
        return Rule(kind=kind, states=take(names, 1), actions=take(names, actions), results=take(names, values))

    def table(self, rule: Rule, rng: random.Random) -> tuple[Row, ...]:
        (here,) = rule.states
        values = spread(rule.results, len(rule.actions), rng)
        return tuple((here, action, value, here) for action, value in zip(rule.actions, values, strict=True))

    def task(self, rule: Rule, rng: random.Random) -> Goal:
        each = len(rule.actions) // len(rule.results)
        return Goal(rule.states[0], rng.choice(rule.results), shuffled(rule.actions, rng), 2 if each == 1 else 1)

    def odds(self, rule: Rule, facts: Sequence[Fact], goal: Goal, here: str, left: int) -> dict[str, float]:
        given = {action: result for _, result, action in facts}
        there = still_there(rule, len(rule.actions), list(given.values()))
        open_ = max(1, len(rule.actions) - len(given))
        return {a: float(given[a] == goal.want) if a in given else there[goal.want] / open_ for a in goal.menu}


class Offset(Family):
    """Actions stand in a ring, in the order that shows from any of them on; each gives the one a hidden number of places further.
    Sizes: names of the ring."""

    name = "offset"
    sizes = ((4,), (5,), (6,), (7,))

    def roles(self, kind: str, sizes: Sizes, names: Iterator[str]) -> Rule:
        here, ring = take(names, 1), take(names, *sizes)
        return Rule(kind=kind, states=here, actions=ring, results=ring)

    def table(self, rule: Rule, rng: random.Random) -> tuple[Row, ...]:
        (here,), ring = rule.states, rule.actions
        by = rng.randrange(1, len(ring))
        return tuple((here, action, ring[(i + by) % len(ring)], here) for i, action in enumerate(ring))

    def task(self, rule: Rule, rng: random.Random) -> Goal:
        at = rng.randrange(len(rule.actions))
        return Goal(rule.states[0], rng.choice(rule.results), rule.actions[at:] + rule.actions[:at], 1)

    def odds(self, rule: Rule, facts: Sequence[Fact], goal: Goal, here: str, left: int) -> dict[str, float]:
        ring = rule.actions
        by = {(ring.index(result) - ring.index(action)) % len(ring) for _, result, action in facts}
        place = ring.index(goal.want)
        left_over = by or set(range(1, len(ring)))
        return {a: float((place - i) % len(ring) in left_over) / len(left_over) for i, a in enumerate(ring)}


class Locks(Family):
    """Each lock is opened by one key, no two by the same. Sizes: locks, keys."""

    name = "locks"
    sizes = ((2, 4), (3, 4), (4, 4), (3, 5), (2, 5))

    def roles(self, kind: str, sizes: Sizes, names: Iterator[str]) -> Rule:
        locks, keys = sizes
        return Rule(kind=kind, states=take(names, locks), actions=take(names, keys), results=take(names, 2))

    def table(self, rule: Rule, rng: random.Random) -> tuple[Row, ...]:
        fits = dict(zip(rule.states, rng.sample(rule.actions, len(rule.states)), strict=True))
        opens, stays = rule.results
        return tuple(
            (lock, key, opens if fits[lock] == key else stays, lock) for lock in rule.states for key in rule.actions
        )

    def task(self, rule: Rule, rng: random.Random) -> Goal:
        return Goal(rng.choice(rule.states), rule.results[0], shuffled(rule.actions, rng), 2)

    def odds(self, rule: Rule, facts: Sequence[Fact], goal: Goal, here: str, left: int) -> dict[str, float]:
        fits = {state: action for state, result, action in facts if result == rule.results[0]}
        if here in fits:
            return {a: float(a == fits[here]) for a in goal.menu}
        out = {action for state, _, action in facts if state == here} | set(fits.values())
        open_ = [a for a in goal.menu if a not in out]
        return {a: float(a in open_) / max(1, len(open_)) for a in goal.menu}


class Threshold(Family):
    """Each thing has a hidden level; actions are levels in the order in which they are shown, three of them for a task; too low,
    too high and right have names of their own. Sizes: things, levels."""

    name = "threshold"
    sizes = ((2, 5), (2, 6), (2, 7), (3, 5), (3, 6))

    def roles(self, kind: str, sizes: Sizes, names: Iterator[str]) -> Rule:
        things, levels = sizes
        return Rule(kind=kind, states=take(names, things), actions=take(names, levels), results=take(names, 3))

    def table(self, rule: Rule, rng: random.Random) -> tuple[Row, ...]:
        right, low, high = rule.results
        rows: list[Row] = []
        for thing in rule.states:
            level = rng.randrange(len(rule.actions))
            for i, action in enumerate(rule.actions):
                rows.append((thing, action, right if i == level else low if i < level else high, thing))
        return tuple(rows)

    def task(self, rule: Rule, rng: random.Random) -> Goal:
        here = rng.choice(rule.states)
        levels = rng.sample(rule.actions, 3)
        if all(rule.effects[here, level][0] != rule.results[0] for level in levels):
            levels[0] = next(a for a in rule.actions if rule.effects[here, a][0] == rule.results[0])
        return Goal(here, rule.results[0], tuple(sorted(levels, key=rule.actions.index)), 1)

    def odds(self, rule: Rule, facts: Sequence[Fact], goal: Goal, here: str, left: int) -> dict[str, float]:
        right, low, _ = rule.results
        first, last = 0, len(rule.actions) - 1
        for state, result, action in facts:
            if state == here and action in rule.actions:
                i = rule.actions.index(action)
                if result == right:
                    return {a: float(a == action) for a in goal.menu}
                first, last = (max(first, i + 1), last) if result == low else (first, min(last, i - 1))
        open_ = [a for a in goal.menu if first <= rule.actions.index(a) <= last]
        return {a: float(a in open_) / max(1, len(open_)) for a in goal.menu}
