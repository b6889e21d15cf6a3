"""A task: a template, its parts, whose apps, what is hidden; drawn so that it can be done within its calls and turns."""

import random
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from cod_lightning.envs.apps.agent import Agent, Call, Result
from cod_lightning.envs.apps.api import ApiError
from cod_lightning.envs.apps.facts import Facts
from cod_lightning.envs.apps.person import Person, person_of, populated
from cod_lightning.envs.apps.server import Server
from cod_lightning.envs.apps.templates import TEMPLATES, Template
from cod_lightning.envs.apps.templates.base import Draw, Truth
from cod_lightning.envs.apps.user import ScriptedUser
from cod_lightning.envs.unchanging import Unchanging

_UNBOUNDED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AppsTask(Unchanging):
    """One goal in the apps of a person."""

    template: str
    parts: tuple[tuple[str, str], ...]
    person: int
    """Seed of the person and of all that the apps hold."""
    facts: Facts
    budget: int = _UNBOUNDED
    """Calls that are answered."""

    @property
    def kind(self) -> Template:
        """Its template."""
        return TEMPLATES[self.template]

    @property
    def text(self) -> str:
        """What the person says."""
        return self.kind.stated(dict(self.parts))

    @property
    def withheld(self) -> Mapping[str, str]:
        """What the person says only when asked."""
        return {name: value for name, value in self.parts if name in self.kind.withheld}

    def server(self, patience: int) -> Server:
        """The site before the task."""
        user = ScriptedUser(self.facts, self.withheld, patience)
        return Server(populated(self.person, self.facts).copy(), self.facts, self.whose, user, self.budget)

    @property
    def whose(self) -> Person:
        """The person."""
        return person_of(self.person)

    def expected(self) -> Truth:
        """What has to change."""
        return _expected(self)


@lru_cache(maxsize=4_096)
def _expected(task: AppsTask) -> Truth:
    truth = Truth(populated(task.person, task.facts), task.facts, task.whose)
    task.kind.expected(truth, dict(task.parts))
    return truth


def draw_task(rng: random.Random, person: int, facts: Facts, names: Iterable[str]) -> AppsTask | None:
    """A task of one of these templates that asks for something; None where this draw found no material."""
    name = rng.choice(sorted(names))
    try:
        parts = TEMPLATES[name].draw(Draw(populated(person, facts), rng))
    except IndexError:
        return None
    task = AppsTask(template=name, parts=tuple(parts.items()), person=person, facts=facts)
    return task if asks_for_something(task) else None


def asks_for_something(task: AppsTask) -> bool:
    """Whether every change that it names is one."""
    truth = task.expected()
    return bool(truth.changes or truth.answer) and all(one.before != one.after for one in truth.changes)


def with_budget(task: AppsTask, spare_calls: int, max_turns: int, patience: int) -> AppsTask | None:
    """The task with as many calls as informed play takes, and some to spare; None where that takes too many turns."""
    turns, calls = effort(task, task.facts, patience)
    return replace(task, budget=calls + spare_calls) if turns <= max_turns else None


def effort(task: AppsTask, believed: Facts, patience: int) -> tuple[int, int]:
    """(turns, calls) that a scripted player with these beliefs takes."""
    server = task.server(patience)
    return play(server, Agent(believed, task.whose.first).work(task.kind, stated_parts(task))), server.calls


def stated_parts(task: AppsTask) -> dict[str, str]:
    """Parts that the person states."""
    return {name: value for name, value in task.parts if name not in task.kind.withheld}


def play(server: Server, plan: Generator[Any, Any, Any]) -> int:
    """Carry out a plan to its end; the turns it took."""
    turns, calls = 0, next(plan)
    while True:
        turns += 1
        server.begin_turn()
        results = answered(server, calls)
        if server.finished:
            return turns
        calls = plan.send(results)


def answered(server: Server, calls: Iterable[Call]) -> list[Result]:
    """Results in order, up to and with the first error."""
    results: list[Result] = []
    for call in calls:
        try:
            results.append(Result(server.call(call.name, call.arguments)))
        except ApiError as error:
            return [*results, Result(None, str(error))]
    return results
