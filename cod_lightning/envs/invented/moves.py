"""Families whose actions move: graphs with hidden edges, finite machines with outputs."""

import random
from collections.abc import Iterator, Sequence

from cod_lightning.envs.invented.family import Family, Sizes, shuffled, take
from cod_lightning.envs.invented.rule import Fact, Goal, Row, Rule, way


class Moves(Family):
    """An action leads from state to state, and a task may take more than one.

    The odds of a move are those of what it gives at once: where it leads matters to `rule.way` alone.
    """

    turns: int
    """Of a task."""

    def task(self, rule: Rule, rng: random.Random) -> Goal:
        while True:
            goal = Goal(rng.choice(rule.states), rng.choice(rule.results), shuffled(rule.actions, rng), self.turns)
            if goal.want != goal.start and len(way(rule.facts, rule.states, goal, goal.start, 2)) >= 1:
                return goal

    def odds(self, rule: Rule, facts: Sequence[Fact], goal: Goal, here: str, left: int) -> dict[str, float]:
        tried = {action: result for state, result, action in facts if state == here and result in rule.results}
        guess = 1 / (1 + len(rule.results))
        return {a: guess if a not in tried else float(tried[a] == goal.want) for a in goal.menu}


class Graph(Moves):
    """Places, and ways out of each that lead to another; the wanted result is a place. Sizes: places, ways out."""

    name = "graph"
    sizes = ((4, 2), (4, 3), (5, 2), (5, 3), (6, 2))
    turns = 3

    def roles(self, kind: str, sizes: Sizes, names: Iterator[str]) -> Rule:
        places, ways = take(names, sizes[0]), take(names, sizes[1])
        return Rule(kind=kind, states=places, actions=ways, results=places)

    def table(self, rule: Rule, rng: random.Random) -> tuple[Row, ...]:
        rows: list[Row] = []
        for place in rule.states:
            ends = rng.sample([other for other in rule.states if other != place], len(rule.actions))
            rows += [(place, action, end, end) for action, end in zip(rule.actions, ends, strict=True)]
        return tuple(rows)


class StateMachine(Moves):
    """A machine with a few states: an action gives an output and leads to a state. Sizes: states, actions, outputs."""

    name = "machine"
    sizes = ((2, 3, 3), (2, 4, 4), (3, 3, 3), (3, 3, 4), (3, 4, 3))
    turns = 2

    def roles(self, kind: str, sizes: Sizes, names: Iterator[str]) -> Rule:
        states, actions, outputs = (take(names, size) for size in sizes)
        return Rule(kind=kind, states=states, actions=actions, results=outputs)

    def table(self, rule: Rule, rng: random.Random) -> tuple[Row, ...]:
        return tuple(
            (state, action, rng.choice(rule.results), rng.choice(rule.states))
            for state in rule.states
            for action in rule.actions
        )
