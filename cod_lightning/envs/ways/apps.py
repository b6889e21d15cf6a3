"""The habits of a person in fused words: which card, which address, whom "the boss" means."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from cod_lightning.envs.apps.facts import CHOICES, HABITS, USUAL_ZONE, HiddenFacts, draw_slots
from cod_lightning.envs.apps.tasks import AppsTask, draw_task
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.ways.known import KnownWays
from cod_lightning.envs.ways.world import FusedWays, WaysWorld
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Count, Natural
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


def split_of(facts: HiddenFacts, slots: Sequence[str]) -> Split:
    """The split of these habits: the places of their values, added up modulo four, are 0 in tests and 1 in validation.

    So in every split each value of a habit is as frequent, and so is each combination of all habits but one: neither a player
    without memory nor one that knows the other habits can learn in training what is otherwise in tests.
    """
    places = sum(CHOICES[slot].index(getattr(facts, slot)) for slot in slots)
    return (Split.TEST, Split.VALIDATION, Split.TRAIN, Split.TRAIN)[places % 4]


class AppsWays(WaysWorld[AppsTask]):
    """Say the habits of a person that tasks in the apps are about, a word for each.

    Args:
        max_turns: Turns per task.
        slots: Which habits tasks are about, 3 or more, address beside card; the others are known to be the first.
        misses: Wrong words that a task forgives.
        teacher: How good the demonstrations of the warm start are.
    """

    task_type = AppsTask
    wording = FusedWays("apps", KnownHabits, GOALS, ("win", "lost", "late", "malformed"))
    drawn_as, goal = "apps", "template"

    def __init__(
        self,
        max_turns: Count = 3,
        slots: Sequence[Literal["card", "address", "boss", "sign", "minutes"]] = HABITS,
        misses: Natural = 1,
        teacher: TeacherDials = TeacherDials(),  # noqa: B008  (frozen)
    ) -> None:
        self.kinds = tuple(name for name, about in GOALS.items() if set(about) <= set(slots))
        if len({slot for kind in self.kinds for slot in GOALS[kind]}) < max(3, len(slots)):
            expected = "3 habits or more, each once, since of fewer the one not seen yet would follow from training"
            expected += ", and card beside address, which no task is about alone"
            raise ConfigError("data.env.slots", list(slots), expected, "Name more.")
        self.max_turns, self.slots, self.misses, self.teacher = max_turns, tuple(slots), misses, teacher
        self.name = f"apps-compact-t{max_turns}-m{misses}-{'.'.join(slots)}-facts"

    def hidden(self, rng: random.Random, split: Split) -> tuple[int, HiddenFacts]:
        """A person, and habits of the split."""
        return rng.randrange(2**40), self._facts(rng, split)

    def _facts(self, rng: random.Random, split: Split) -> HiddenFacts:
        usual = HiddenFacts(zone=USUAL_ZONE, **{slot: CHOICES[slot][0] for slot in HABITS})
        while True:
            facts = draw_slots(rng, usual, [slot for slot in HABITS if slot in self.slots])
            if split_of(facts, self.slots) is split:
                return facts

    def task(self, rng: random.Random, split: Split, hidden: tuple[int, HiddenFacts]) -> AppsTask:
        while (task := draw_task(rng, *hidden, self.kinds)) is None:
            pass
        return task

    def other_ways(self, rng: random.Random, split: Split, task: AppsTask) -> Mapping[str, Any]:
        """Every habit is another one."""
        while True:
            new = self._facts(rng, split)
            if all(getattr(new, slot) != getattr(task.facts, slot) for slot in self.slots):
                return {"facts": new}

    def truth(self, task: AppsTask) -> Mapping[str, str]:
        return {slot: getattr(task.facts, slot) for slot in self.slots}
