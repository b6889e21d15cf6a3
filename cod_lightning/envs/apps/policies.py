"""Play in sentences: plans of the templates, carried out as the dialogue shows how it goes."""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cod_lightning.envs.apps.actions import Actions
from cod_lightning.envs.apps.agent import Answered, AppsAgent
from cod_lightning.envs.apps.facts import HABITS, SLOTS, HiddenFacts, draw_slots, read_facts, write_facts
from cod_lightning.envs.apps.site import AppSite
from cod_lightning.envs.players import Play
from cod_lightning.envs.tool_calls import ToolCall
from cod_lightning.types import Message

KNOWN = "What I know here:"
_OPENING = re.compile(r"for me, (\w+) .*\nTask: (.*)")


@dataclass(frozen=True)
class AppsPlay(Play[HiddenFacts]):
    """Follows a template's plan with what it believes; asks, looks and mends where an error shows that it must."""

    actions: Actions
    site: AppSite

    @property
    def nothing(self) -> HiddenFacts:
        return HiddenFacts()

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Any call with any arguments that fit, or the end."""
        endpoint = rng.choice([one for app in self.site.apps for one in app.endpoints.values()])
        values = {
            "whole number": rng.randint(1, 90),
            "text": rng.choice(("inbox", "a@home.example", "2026-03-05")),
            "number": 1.5,
        }
        named = {p.name: values[p.kind] for p in endpoint.parameters if p.required and p.kind in values}
        ending = ToolCall("user.done", {"answer": str(rng.randint(1, 90))})
        return self._answer(
            HiddenFacts(), [ToolCall(f"{endpoint.app}.{endpoint.name}", named) if rng.random() < 0.8 else ending]
        )

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> HiddenFacts:
        """What the player stated in its first response, else what the context states: a plan keeps to one belief."""
        if len(messages) > 2:
            return read_facts(messages[2].content)
        return read_facts(messages[0].content) if trust_context else HiddenFacts()

    def answer(self, messages: Sequence[Message], known: HiddenFacts, rng: random.Random) -> str:
        """The next batch of the plan, after all results that the dialogue shows."""
        found = _OPENING.search(messages[1].content)
        assert found is not None, "this is no first observation"
        template, parts = next((t, p) for t in self.site.templates.values() if (p := t.read(found[2])) is not None)
        agent = AppsAgent(known, found[1], self.site.apps)
        plan = agent.work(template, parts)
        calls = next(plan)
        for message in messages[3::2]:
            calls = plan.send(_results(message.content))
        return self._answer(agent.believed, calls)

    def _answer(self, believed: HiddenFacts, calls: Sequence[ToolCall]) -> str:
        return f"{KNOWN}\n{write_facts(believed) or 'nothing special'}\n{self.actions.spelled(calls)}"

    def recorded(self, messages: Sequence[Message]) -> HiddenFacts:
        """The old notes, overruled by what the task's last response and the person's last words state."""
        return read_facts("\n".join(message.content for message in messages))

    def noisy(self, facts: HiddenFacts, accuracy: float, rng: random.Random) -> HiddenFacts:
        wrong = [slot for slot in SLOTS if rng.random() >= accuracy]
        wild = draw_slots(rng, facts, wrong)
        return replace(wild, **{slot: "" for slot in wrong if slot not in HABITS and rng.random() < 0.5})

    def write(self, facts: HiddenFacts, messages: Sequence[Message] = ()) -> str:
        return write_facts(facts) or "- Nothing is known."


def _results(shown: str) -> list[Answered]:
    """Results of a turn as its observation shows them."""
    results: list[Answered] = []
    for line in shown.splitlines():
        if line.startswith(("error ", "refused: ")):
            results.append(Answered(None, line))
        elif not line.startswith("Calls left: "):
            results.append(Answered(json.loads(line)))
    return results
