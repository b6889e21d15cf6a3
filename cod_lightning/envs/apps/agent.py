"""How a scripted player works through the apps: logs in, reads errors, asks when it does not know, and remembers.

A template's `solve` is a generator of batches of calls. A player that keeps nothing between turns runs it again from the
beginning at every turn and feeds it the results that the dialogue shows, so its next batch depends on the dialogue alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cod_lightning.envs.apps.api import App
from cod_lightning.envs.apps.facts import CHOICES, HiddenFacts, read_facts
from cod_lightning.envs.apps.person import NOW, on_clock
from cod_lightning.envs.apps.templates.base import Doing, Parts, Template
from cod_lightning.envs.tool_calls import ToolCall

QUESTIONS = {
    "card": "Which card do you pay with?",
    "address": "To which address do deliveries go?",
    "boss": "Who is the boss?",
    "sign": "How do you sign?",
    "minutes": "How long do your meetings take?",
    "day": "On which day?",
    "email": "To whom?",
}


@dataclass(frozen=True)
class Answered:
    """What came back: a value, or an error."""

    value: Any
    error: str = ""


class GiveUp(Exception):
    """The player knows no way on."""


class AppsAgent:
    """Carries out a plan by calls; what it believes of the site and the person grows with what it sees.

    Args:
        believed: What it knows at first.
        first: The person's first name.
        apps: As they are documented.
    """

    def __init__(self, believed: HiddenFacts, first: str, apps: Sequence[App]) -> None:
        self.believed, self.first, self.apps = believed, first, {app.name: app for app in apps}
        self.tokens: dict[str, str] = {}

    def work(self, template: Template, parts: Parts) -> Doing:
        """The whole task, from log-ins to `user.done`."""
        answer = ""
        try:
            yield from self._begin(template.apps)
            known = dict(parts)
            for name in template.withheld:
                said = yield from self("user.ask", question=QUESTIONS[name])
                known[name] = re.sub(r"^The \w+ is (.*)\.$", r"\1", said)
            answer = yield from template.solve(self, known)
        except GiveUp:
            pass
        yield [ToolCall("user.done", {"answer": str(answer)} if answer not in (None, "") else {})]

    def __call__(self, name: str, /, **arguments: Any) -> Doing:
        """One call; its value."""
        (value,) = yield from self.batch([(name, arguments)])
        return value

    def batch(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> Doing:
        """Calls that do not need one another's results, in as few turns as the site allows; their values."""
        values: list[Any] = []
        tries = 0
        while len(values) < len(calls):
            rate = int(self.believed.rate or len(calls))
            results: list[Answered] = yield [self._spelled(*call) for call in calls[len(values) :][:rate]]
            for result in results:
                if result.error:
                    tries += 1
                    if tries > 6:
                        raise GiveUp
                    yield from self._learn(result.error, calls[len(values)][0])
                    break
                values.append(result.value)
        return values

    def all(self, name: str, /, **arguments: Any) -> Doing:
        """The items of all pages of a list."""
        first = yield from self(name, **arguments)
        later = yield from self.batch([(name, {**arguments, "page": n}) for n in range(2, first["pages"] + 1)])
        return [item for page in (first, *later) for item in page["items"]]

    def one(self, name: str, /, **arguments: Any) -> Doing:
        """The first item of a list."""
        page = yield from self(name, **arguments)
        if not page["items"]:
            raise GiveUp
        return page["items"][0]

    def fact(self, slot: str) -> Doing:
        """A habit, asked for where it is not known; guessed where the person does not say."""
        if not getattr(self.believed, slot):
            said = yield from self("user.ask", question=QUESTIONS[slot])
            self.believed = replace(self.believed, **{slot: getattr(read_facts(said), slot)})
        return getattr(self.believed, slot) or CHOICES[slot][0]

    def confirmed(self, what: str, number: str) -> Doing:
        """The number with which the person lets it be done; the one that is stated where the person does not say."""
        said = yield from self("user.ask", question=f"May I {what}? Please confirm.")
        return int((re.findall(r"[0-9]+", said) or [number])[-1])

    def starts(self, day: str, time: str) -> Doing:
        """A time of the person on the calendar's clock, which is looked at where it is not known."""
        if not self.believed.zone:
            clock = yield from self("calendar.clock")
            hours = int(clock["now"][11:13]) - int(NOW[11:13])
            self.believed = replace(self.believed, zone=f"{hours:+}")
        return on_clock(f"{day} {time}", self.believed.zone)

    def boss(self) -> Doing:
        """The boss's entry in the directory."""
        title = yield from self.fact("boss")
        return (yield from self.one("directory.people", title=title))

    def _begin(self, apps: Sequence[str]) -> Doing:
        private = [app for app in apps if self.apps[app].private]
        if private:
            passwords = yield from self("user.passwords")
            found = yield from self.batch([(f"{app}.login", {"password": passwords[app]}) for app in private])
            self.tokens = {app: value["token"] for app, value in zip(private, found, strict=True)}

    def _spelled(self, name: str, arguments: dict[str, Any]) -> ToolCall:
        """As the site is believed to want it."""
        app, _, short = name.partition(".")
        given = dict(arguments)
        if app in self.tokens:
            given["token"] = self.tokens[app]
            if self.believed.field and short in self.apps[app].endpoints and self.apps[app].endpoints[short].writes:
                field, _, value = self.believed.field.partition("=")
                given[field] = value
        if short == "login" and self.believed.moved:
            name = f"{app}.{self.believed.moved}"
        return ToolCall(name, given)

    def _learn(self, error: str, name: str) -> Doing:
        """Mend what the error shows, by another call where it takes one."""
        if found := re.search(r"too many calls in a turn; (\d+) are answered", error):
            self.believed = replace(self.believed, rate=found[1])
        elif found := re.search(r"an argument is missing; expected (\S+)$", error):
            self.believed = replace(self.believed, field=found[1])
        elif " has moved" in error or (self.believed.moved and name.endswith(".login")):
            self.believed = replace(self.believed, moved="")
            there = yield from self("user.endpoints", app=name.partition(".")[0])
            (new,) = [one for one in there if one in CHOICES["moved"]] or [""]
            self.believed = replace(self.believed, moved=new)
        elif self.believed.field and "unknown argument" in error:
            self.believed = replace(self.believed, field="")
        else:
            raise GiveUp
