"""The habits of a person in fused words: which card, which address, whom "the boss" means."""

import random
from collections.abc import Mapping
from typing import Any, ClassVar

from cod_lightning.envs.apps.facts import CHOICES, HABITS, USUAL_ZONE, HiddenFacts, draw_slots
from cod_lightning.envs.apps.tasks import AppsTask, draw_task
from cod_lightning.envs.ways.known import KnownWays
from cod_lightning.envs.ways.world import FusedWays, WaysWorld
from cod_lightning.types import Split

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
"""Kinds of tasks of the apps, and the habits that each is about."""


class KnownHabits(KnownWays):
    """Values of habits known to be right or not."""

    ways: ClassVar = {slot: CHOICES[slot] for slot in HABITS}


def split_of(facts: HiddenFacts) -> Split:
    """The split of these habits: the places of their values, added up modulo four, are 0 in tests and 1 in validation.

    So in every split each value of a habit is as frequent, and so is each combination of all habits but one: neither a player
    without memory nor one that knows the other habits can learn in training what is otherwise in tests.
    """
    places = sum(CHOICES[slot].index(getattr(facts, slot)) for slot in HABITS)
    return (Split.TEST, Split.VALIDATION, Split.TRAIN, Split.TRAIN)[places % 4]


class AppsWays(WaysWorld[AppsTask]):
    """Say the habits of a person that tasks in the apps are about, a word for each."""

    task_type = AppsTask
    wording = FusedWays("apps", KnownHabits, GOALS, ("win", "lost", "late", "malformed"))
    drawn_as, goal = "apps", "template"
    max_turns, misses = 3, 1
    name = f"apps-compact-t{max_turns}-m{misses}-{'.'.join(HABITS)}-facts"

    def hidden(self, rng: random.Random, split: Split) -> tuple[int, HiddenFacts]:
        """A person, and habits of the split."""
        return rng.randrange(2**40), self._facts(rng, split)

    def _facts(self, rng: random.Random, split: Split) -> HiddenFacts:
        while True:
            facts = draw_slots(rng, HiddenFacts(zone=USUAL_ZONE), HABITS)
            if split_of(facts) is split:
                return facts

    def task(self, rng: random.Random, split: Split, hidden: tuple[int, HiddenFacts]) -> AppsTask:
        while (task := draw_task(rng, *hidden, GOALS)) is None:
            pass
        return task

    def other_ways(self, rng: random.Random, split: Split, task: AppsTask) -> Mapping[str, Any]:
        """Every habit is another one."""
        while True:
            new = self._facts(rng, split)
            if all(getattr(new, slot) != getattr(task.facts, slot) for slot in HABITS):
                return {"facts": new}

    def truth(self, task: AppsTask) -> Mapping[str, str]:
        return {slot: getattr(task.facts, slot) for slot in HABITS}
