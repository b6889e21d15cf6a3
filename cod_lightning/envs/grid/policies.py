"""Play on the grid: the best route by what is known of the map."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.grid.estimate import Prior, estimate
from cod_lightning.envs.grid.field import LANE_COSTS, TOP, Cell, units
from cod_lightning.envs.grid.rook import best_route, entered, random_move
from cod_lightning.envs.grid.wording import GridWording
from cod_lightning.envs.players import Play
from cod_lightning.types import Message


@dataclass(frozen=True)
class GridPlay(Play[Mapping[Cell, int]]):
    """The route with the lowest expected mean cost, unknown cells estimated from known ones."""

    wording: GridWording
    prior: Prior
    side: int
    """Of the pack's map."""
    drops: bool = True
    """Whether a context that contradicts what is seen is dropped as a whole: the map must have changed."""

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        at, side = self.wording.standing(messages), self.wording.side_in(messages)
        return self.wording.respond(random_move(at.stops[-1], at.goal, at.left, side, rng), {})

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> Mapping[Cell, int]:
        noted, seen = self.wording.in_context(messages) if trust_context else {}, self.wording.seen(messages)
        changed = any(noted.get(cell, cost) != cost for cell, cost in seen.items())
        return seen if self.drops and changed else {**noted, **seen}

    def answer(self, messages: Sequence[Message], known: Mapping[Cell, int], rng: random.Random) -> str:
        known = {**known, **self.wording.seen(messages)}
        at = self.wording.standing(messages)
        costs = estimate(known, self.wording.side_in(messages), self.prior)
        path = [cell for before, after in zip(at.stops, at.stops[1:], strict=False) for cell in entered(before, after)]
        spent = sum(int(costs[cell]) for cell in path)
        route = best_route(costs, at.stops[-1], at.goal, at.left, spent, len(path))
        return self.wording.respond(route.stops[0], known)

    def recorded(self, messages: Sequence[Message]) -> Mapping[Cell, int]:
        return self.known(messages, trust_context=True)

    def noisy(self, facts: Mapping[Cell, int], accuracy: float, rng: random.Random) -> Mapping[Cell, int]:
        parameters = self.wording.parameters
        costs = LANE_COSTS if parameters.lanes else tuple(range(TOP + 1))
        noisy: dict[Cell, int] = {}
        for unit in units(self.side, parameters.lanes):
            cost = facts.get(unit[0]) if rng.random() < accuracy else rng.choice((*costs, None))
            if cost is not None:
                noisy.update(dict.fromkeys(unit, cost))
        return noisy

    def write(self, facts: Mapping[Cell, int], messages: Sequence[Message] = ()) -> str:
        return self.wording.write(facts, self.wording.side_in(messages) if messages else self.side)
