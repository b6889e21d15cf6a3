"""The apps in fused words: which card, which address, whom "the boss" means; one word for one habit a turn.

`goal=buy_goods`, answered `card <answer>gold</answer>`, gives `gold=no` or `gold=ok`. A word is carried out by the scripted plan
through the same endpoints on the same database, in which it stands for one belief while all others are true, and it is right if
all checks on the final state pass. A task is done when each of its habits was met.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from cod_lightning.envs.apps.facts import CHOICES, HABITS, USUAL_ZONE, HiddenFacts, draw_slots
from cod_lightning.envs.apps.tasks import AppsTask, play
from cod_lightning.envs.known_ways import KnownWays, WaysPlay, effect
from cod_lightning.envs.task_world import WorldWording
from cod_lightning.types import Message, Split

GOALS: dict[str, tuple[str, ...]] = {
    "send_money": ("card",),
    "pay_contact": ("card",),
    "book_trip": ("card",),
    "buy_goods": ("card", "address"),
    "share_with_boss": ("boss",),
    "forward_to_boss": ("boss",),
    "send_mail": ("sign",),
    "text_contact": ("sign",),
    "mail_boss": ("boss", "sign"),
    "new_event": ("minutes",),
    "meet_boss": ("boss", "minutes"),
    "plan_trip": ("card", "minutes"),
}
"""Templates, and the habits that each is about."""
VALUES = {slot: CHOICES[slot] for slot in HABITS}
SLOT_OF = {value: slot for slot, values in VALUES.items() for value in values}
OUTCOMES = ("win", "lost", "late", "malformed")
VOID = "void"
"""The effect of a word that the task is not about: it is wrong, and nothing is learned."""


@dataclass(frozen=True, slots=True)
class Said:
    """A word, and what came of it."""

    word: str
    right: bool
    shown: str


class KnownHabits(KnownWays):
    """Values of habits known to be right or not."""

    ways: ClassVar = VALUES


def draw(rng: random.Random, slots: Sequence[str]) -> HiddenFacts:
    """A usual site, and a person of whose habits these are drawn; the others are known to be the first."""
    usual = HiddenFacts(zone=USUAL_ZONE, **{slot: VALUES[slot][0] for slot in HABITS})
    return draw_slots(rng, usual, [slot for slot in HABITS if slot in slots])


def split_of(facts: HiddenFacts, slots: Sequence[str]) -> Split:
    """The split of these habits: the places of their values, added up modulo four, are 0 in tests and 1 in validation.

    So in every split each value of a habit is as frequent, and so is each combination of all habits but one: neither a player
    without memory nor one that knows the other habits can learn in training what is otherwise in tests.
    """
    places = sum(VALUES[slot].index(getattr(facts, slot)) for slot in slots)
    return (Split.TEST, Split.VALIDATION, Split.TRAIN, Split.TRAIN)[places % 4]


def truth(facts: HiddenFacts, slots: Sequence[str]) -> KnownHabits:
    """All that is hidden."""
    return KnownHabits({getattr(facts, slot): True for slot in slots})


@lru_cache(maxsize=65_536)
def _passes(task: AppsTask, slot: str, value: str) -> bool:
    """Whether the final state is right where that is believed, and the truth otherwise."""
    server = task.server(patience=0)
    believed = replace(task.facts, **{slot: value})
    play(server, task.plan(believed))
    return all(check.passed for check in task.checked(server))


def say(task: AppsTask, before: Sequence[Said], word: str) -> Said:
    """Carry out a word; one about a habit that was met already is wrong too."""
    slot = SLOT_OF[word]
    if slot not in GOALS[task.template] or any(one.right and SLOT_OF[one.word] == slot for one in before):
        return Said(word, False, VOID)
    right = _passes(task, slot, word)
    return Said(word, right, effect(word, ok=right))


class CompactApps(WorldWording):
    """Fused words."""

    def observation(self, task: AppsTask, said: Sequence[Said]) -> str:
        """The goal at first, then what the last word did."""
        return said[-1].shown if said else f"goal={task.template}"

    def feedback(self, outcome: str, said: Sequence[Said]) -> str:
        """The outcome, and what every different word did."""
        return " ".join([outcome, *dict.fromkeys(one.shown for one in said)])

    def words(self) -> tuple[str, ...]:
        effects = tuple(effect(value, ok=ok) for value in SLOT_OF for ok in (True, False))
        answers = tuple(f"<answer>{value}</answer>" for value in SLOT_OF)
        return ("apps", *(f"goal={name}" for name in GOALS), *effects, *answers, *HABITS, *OUTCOMES, VOID)


class HabitPlay(WaysPlay):
    """Play in fused words; Bayes-optimal in each task."""

    kind: ClassVar = KnownHabits

    @staticmethod
    def slot(messages: Sequence[Message]) -> str:
        """The first habit of the goal that was not met."""
        met = KnownHabits.read([message.content for message in messages[2:]]).effects
        slots = GOALS[messages[1].content.removeprefix("goal=")]
        return next((slot for slot in slots if not any(met.get(value) for value in VALUES[slot])), slots[-1])
