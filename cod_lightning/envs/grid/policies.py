"""Who walks the grid without a model: at random, planning on what is known, with the true map, or as a teacher."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.base import Demonstrator, TextPolicy
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.grid.chart import Labels
from cod_lightning.envs.grid.estimate import Prior, estimate
from cod_lightning.envs.grid.field import TOP, Cell, Costs, level_costs, units
from cod_lightning.envs.grid.rook import best_route, entered, random_move
from cod_lightning.envs.grid.wording import GridWording
from cod_lightning.types import Message


@dataclass(frozen=True)
class RandomGridPolicy(TextPolicy):
    """A random walk of legal moves that ends on the target; notes nothing."""

    wording: GridWording

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Any move after which the target can still be met."""
        at, labels = self.wording.standing(messages), self.wording.labels(messages)
        to = random_move(at.stops[-1], at.goal, at.left, len(labels.rows), rng)
        return self.wording.respond(to, labels, {})

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.write({}, self.wording.labels(messages))


@dataclass(frozen=True)
class ScriptedGridPolicy(TextPolicy):
    """Perfect memory; takes the route with the lowest expected mean cost, unknown cells estimated from known ones.

    A context that contradicts what is seen is dropped as a whole: the map must have changed.
    """

    wording: GridWording
    prior: Prior

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return go(self.wording, messages, self._known(messages), self.prior)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.write(self._known(messages), self.wording.labels(messages))

    def _known(self, messages: Sequence[Message]) -> dict[Cell, int]:
        told, seen = self.wording.told(messages), self.wording.seen(messages)
        changed = any(told.get(cell, cost) != cost for cell, cost in seen.items())
        return seen if changed else {**told, **seen}


@dataclass(frozen=True)
class GridOracle(TextPolicy):
    """Knows the map of the pack's first task."""

    wording: GridWording
    prior: Prior
    truth: Mapping[Cell, int]

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return go(self.wording, messages, {**self.truth, **self.wording.seen(messages)}, self.prior)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.write(self.truth, self.wording.labels(messages))


@dataclass(frozen=True)
class GridTeacher(Demonstrator):
    """Shows the protocol; plans like the scripted policy, trusts the context mostly, and notes only part of what it saw."""

    wording: GridWording
    prior: Prior
    truth: Mapping[Cell, int]
    names: Labels
    dials: TeacherDials

    def context(self, rng: random.Random) -> str:
        draw = rng.random()
        if draw < self.dials.context_true:
            return self.wording.write(self._noisy(self.truth, self.dials.context_accuracy, rng), self.names)
        if draw < self.dials.context_true + self.dials.context_junk:
            return self.wording.write(self._noisy({}, 0.0, rng), self.names)
        return ""

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        trusting = rng.random() < self.dials.follow
        told = self.wording.told(messages) if trusting else {}
        return go(self.wording, messages, {**told, **self.wording.seen(messages)}, self.prior)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        recorded = {**self.wording.told(messages), **self.wording.seen(messages)}
        return self.wording.write(self._noisy(recorded, self.dials.note_accuracy, rng), self.wording.labels(messages))

    def _noisy(self, known: Mapping[Cell, int], accuracy: float, rng: random.Random) -> dict[Cell, int]:
        parameters = self.wording.parameters
        costs = level_costs(parameters.levels) if parameters.levels else tuple(range(TOP + 1))
        noisy: dict[Cell, int] = {}
        for unit in units(len(self.names.rows), parameters.lanes):
            cost = known.get(unit[0]) if rng.random() < accuracy else rng.choice((*costs, None))
            if cost is not None:
                noisy.update(dict.fromkeys(unit, cost))
        return noisy


def go(wording: GridWording, messages: Sequence[Message], known: Mapping[Cell, int], prior: Prior) -> str:
    """The first move of the route that makes the mean cost over the whole task lowest, by what is known."""
    at, labels = wording.standing(messages), wording.labels(messages)
    costs = estimate(known, len(labels.rows), prior)
    path = [cell for before, after in zip(at.stops, at.stops[1:], strict=False) for cell in entered(before, after)]
    spent = sum(int(costs[cell]) for cell in path)
    route = best_route(costs, at.stops[-1], at.goal, at.left, spent, len(path))
    return wording.respond(route.stops[0], labels, known)


def truth_of(costs: Costs) -> dict[Cell, int]:
    """A whole map as facts."""
    return {(row, column): cost for row, line in enumerate(costs) for column, cost in enumerate(line)}
