"""A task: a template, its parts, whose apps, what is hidden; drawn so that it can be done within its calls and turns."""

import random
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from cod_lightning.envs.apps.agent import Answered, AppsAgent
from cod_lightning.envs.apps.api import ApiError
from cod_lightning.envs.apps.checks import Check, checks
from cod_lightning.envs.apps.database import Database
from cod_lightning.envs.apps.facts import HiddenFacts
from cod_lightning.envs.apps.person import Owner, person_of, populated
from cod_lightning.envs.apps.server import AppServer
from cod_lightning.envs.apps.site import AppSite, Extension, site_of
from cod_lightning.envs.apps.templates import Template
from cod_lightning.envs.apps.templates.base import Draw, Truth
from cod_lightning.envs.apps.user import User
from cod_lightning.envs.base import Unchanging
from cod_lightning.envs.tool_calls import ToolCall
from cod_lightning.seeds import derive_seed

_UNBOUNDED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AppsTask(Unchanging):
    """One goal in the apps of a person."""

    template: str
    parts: tuple[tuple[str, str], ...]
    person: int
    """Seed of the person and of all that the apps hold."""
    facts: HiddenFacts
    budget: int = _UNBOUNDED
    """Calls that are answered."""
    extensions: tuple[Extension, ...] = ()

    @property
    def site(self) -> AppSite:
        """Apps, and kinds of tasks."""
        return site_of(self.extensions)

    @property
    def kind(self) -> Template:
        """Its template."""
        return self.site.templates[self.template]

    @property
    def text(self) -> str:
        """What the person says."""
        return self.kind.stated(dict(self.parts))

    @property
    def withheld(self) -> Mapping[str, str]:
        """What the person says only when asked."""
        return {name: value for name, value in self.parts if name in (*self.kind.withheld, "agreed")}

    def server(self, patience: int) -> AppServer:
        """The site before the task."""
        user = User(self.facts, self.withheld, patience)
        db = _filled(self.person, self.facts, self.extensions).copy()
        return AppServer(db, self.facts, self.whose, user, self.site.apps, self.budget)

    def plan(self, believed: HiddenFacts) -> Generator[Any, Any, Any]:
        """How a scripted player with these beliefs goes about it."""
        return AppsAgent(believed, self.whose.first, self.site.apps).work(self.kind, stated_parts(self))

    @property
    def whose(self) -> Owner:
        """The person."""
        return person_of(self.person)

    def expected(self) -> Truth:
        """What has to change."""
        return _expected(self)

    def checked(self, server: AppServer) -> list[Check]:
        """The checks, at what its server has come to."""
        return checks(self.expected(), server.db, server.answer, server.finished, server.replies)


@lru_cache(maxsize=1_024)
def _filled(person: int, facts: HiddenFacts, extensions: tuple[Extension, ...]) -> Database:
    """What the apps hold before a task. The database is shared: copy it before you write."""
    db = populated(person, facts)
    for extension in extensions:
        rng = random.Random(derive_seed("app", extension.app.name, person))
        extension.fill(db, person_of(person), rng)
    return db


@lru_cache(maxsize=4_096)
def _expected(task: AppsTask) -> Truth:
    truth = Truth(_filled(task.person, task.facts, task.extensions), task.facts, task.whose)
    task.kind.expected(truth, dict(task.parts))
    return truth


def draw_task(
    rng: random.Random, person: int, facts: HiddenFacts, names: Iterable[str], extensions: tuple[Extension, ...] = ()
) -> AppsTask | None:
    """A task of one of these templates that asks for something; None where this draw found no material."""
    name = rng.choice(sorted(names))
    try:
        parts = site_of(extensions).templates[name].draw(Draw(_filled(person, facts, extensions), rng))
    except IndexError:
        return None
    task = AppsTask(template=name, parts=tuple(parts.items()), person=person, facts=facts, extensions=extensions)
    return task if asks_for_something(task) else None


def asks_for_something(task: AppsTask) -> bool:
    """Whether every change that it names is one."""
    truth = task.expected()
    return bool(truth.changes or truth.answer) and all(one.before != one.after for one in truth.changes)


def with_budget(task: AppsTask, spare_calls: int, max_turns: int, patience: int) -> AppsTask | None:
    """The task with as many calls as informed play takes, and some to spare; None where that takes too many turns."""
    turns, calls = effort(task, task.facts, patience)
    return replace(task, budget=calls + spare_calls) if turns <= max_turns else None


def effort(task: AppsTask, believed: HiddenFacts, patience: int) -> tuple[int, int]:
    """(turns, calls) that a scripted player with these beliefs takes."""
    server = task.server(patience)
    return play(server, task.plan(believed)), server.calls


def stated_parts(task: AppsTask) -> dict[str, str]:
    """Parts that the person states."""
    return {name: value for name, value in task.parts if name not in task.withheld}


def play(server: AppServer, plan: Generator[Any, Any, Any]) -> int:
    """Carry out a plan to its end; the turns it took."""
    turns, calls = 0, next(plan)
    while True:
        turns += 1
        server.begin_turn()
        results = answered(server, calls)
        if server.finished:
            return turns
        calls = plan.send(results)


def answered(server: AppServer, calls: Iterable[ToolCall]) -> list[Answered]:
    """Results in order, up to and with the first error."""
    results: list[Answered] = []
    for call in calls:
        try:
            results.append(Answered(server.call(call.name, call.arguments)))
        except ApiError as error:
            return [*results, Answered(None, str(error))]
    return results
