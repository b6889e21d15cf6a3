"""Play in a house, from what the dialogue says: random, scripted, the walkthrough, and a teacher."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.base import TextPolicy
from cod_lightning.envs.players import Play, kept_or_any
from cod_lightning.envs.textworld.houses import HERE
from cod_lightning.envs.textworld.wording import HouseWording, Places
from cod_lightning.types import Message, Role

_STEPS = {"north": (0, 1), "east": (1, 0), "south": (0, -1), "west": (-1, 0)}
_BACK = {"north": "south", "east": "west", "south": "north", "west": "east"}


@dataclass(frozen=True)
class HousePlay(Play[Places]):
    """Goes where the wanted thing is known to be, else through rooms that were not seen yet, and opens what is closed on the way.

    It remembers where things are, not which rooms are empty.
    """

    wording: HouseWording
    things: tuple[str, ...]
    """Labels of all that can be sought in the house."""
    routes: tuple[str, ...]
    """To any of its rooms."""

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        command = rng.choice(self.wording.commands(messages[-1].content))
        return self.wording.respond(self.wording.wanted(messages[1].content), None, command)

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> Places:
        return self.wording.places(messages[0].content) if trust_context else {}

    def answer(self, messages: Sequence[Message], known: Places, rng: random.Random) -> str:
        wanted = self.wording.wanted(messages[1].content)
        route = known.get(wanted)
        command = self._command(messages, wanted, route, known, rng)
        return self.wording.respond(wanted, route, command)

    def _command(
        self, messages: Sequence[Message], wanted: str, route: str | None, known: Places, rng: random.Random
    ) -> str:
        commands = self.wording.commands(messages[-1].content)
        ways = {direction: one for one in commands if (direction := self.wording.direction(one))}
        if takes := [one for one in commands if self.wording.taken(one) == wanted]:
            return takes[0]
        path, entered = self._walked(messages)
        there = None if route is None else [] if route == HERE else route.split(".")
        ahead = "" if there is None or path == there else _next(path, there)
        if ahead in ways:
            return ways[ahead]
        if opens := [one for one in commands if self.wording.unlocks(one)]:
            doors = [one for one in opens if ahead and one.endswith(ahead)]
            return rng.choice(doors or opens)
        at = _spot(path)
        fresh = {d: one for d, one in ways.items() if (at[0] + _STEPS[d][0], at[1] + _STEPS[d][1]) not in entered}
        seen = set(known.values())
        unseen = [one for d, one in fresh.items() if ".".join([*path, d]) not in seen]
        if unseen or fresh:
            return rng.choice(unseen or list(fresh.values()))
        return ways.get(_BACK[path[-1]], rng.choice(commands)) if path else rng.choice(commands)

    def _walked(self, messages: Sequence[Message]) -> tuple[list[str], set[tuple[int, int]]]:
        """The way from the first room to here, without detours, and the spots that were entered."""
        path: list[str] = []
        entered = {(0, 0)}
        possible = self.wording.commands(messages[1].content)
        for message in messages[2:]:
            if message.role is Role.USER:
                possible = self.wording.commands(message.content)
                continue
            command = answer_of(message.content)[0]
            direction = self.wording.direction(command)
            if direction is None or command not in possible:
                continue
            if path and path[-1] == _BACK[direction]:
                path.pop()
            else:
                path.append(direction)
            entered.add(_spot(path))
        return path, entered

    def recorded(self, messages: Sequence[Message]) -> Places:
        return self.wording.places("\n".join(message.content for message in messages))

    def noisy(self, facts: Places, accuracy: float, rng: random.Random) -> Places:
        """An entry that is not kept is any route, or unknown."""
        return kept_or_any(self.things, facts, accuracy, rng, (*self.routes, None))

    def write(self, facts: Places, messages: Sequence[Message] = ()) -> str:
        return self.wording.write(facts)


@dataclass(frozen=True)
class Walkthrough(TextPolicy):
    """Types the shortest solution of each task, and notes where everything is."""

    solutions: Mapping[str, Sequence[str]]
    """Commands by the label of what is sought."""
    play: HousePlay
    truth: Places

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        wanted = self.play.wording.wanted(messages[1].content)
        typed = sum(message.role is Role.ASSISTANT for message in messages)
        return self.play.wording.respond(wanted, self.truth[wanted], self.solutions[wanted][typed])

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.write(self.truth, messages)


def _next(path: list[str], there: list[str]) -> str:
    """The next step to a room from another, along the way that both came."""
    return there[len(path)] if there[: len(path)] == path else _BACK[path[-1]]


def _spot(path: Sequence[str]) -> tuple[int, int]:
    """Where a way leads, on a plan of the house."""
    return sum(_STEPS[step][0] for step in path), sum(_STEPS[step][1] for step in path)
