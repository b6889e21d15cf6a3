"""The synthetic clinic: which items it requires, which patients come, and what a dialogue implies about its protocol."""

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from cod_lightning.envs.base import split_of_text
from cod_lightning.envs.learn2ask.items import BY_NAME, CONDITIONS, ITEMS, kin_of
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Split

_MOST_EXTRA_TOLD = 3
STOP_SHARE = 0.4
"""Probability that nothing is missing."""
Label = Literal["stop", "continue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClinicTask:
    """One patient of one clinic."""

    condition: str
    opening: int
    """Which of the condition's complaints is said."""
    mentioned: tuple[str, ...]
    """Items known from the dialogue, in order of appearance."""
    phrasing: tuple[int, ...]
    """Of each item in `mentioned`: twice the number of its sentence, plus 1 where the assistant had asked for it."""
    required: tuple[str, ...]
    """The hidden protocol, sorted."""
    priority: tuple[str, ...]
    """All items; of those missing, feedback names the first in this order."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Required items that the dialogue has not mentioned."""
        return tuple(name for name in self.priority if name in self.required and name not in self.mentioned)

    @property
    def label(self) -> Label:
        """Continue while something is missing."""
        return "continue" if self.missing else "stop"

    @property
    def unmentioned(self) -> tuple[str, ...]:
        """Items that the dialogue has not mentioned, in the order of the catalogue."""
        return tuple(item.name for item in ITEMS if item.name in self.priority and item.name not in self.mentioned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clinics:
    """The family of clinics with these sizes."""

    num_items: int = 8
    """Items of a history that the clinic may require, 2 to 12."""
    num_required: int = 3
    """How many it does require, at least 1."""
    num_conditions: int = 6
    """Conditions that patients come with, 3 to 10."""

    @property
    def items(self) -> tuple[str, ...]:
        """Names of the items in play."""
        return tuple(item.name for item in ITEMS[: self.num_items])

    @property
    def conditions(self) -> tuple[str, ...]:
        """Names of the conditions in play."""
        return tuple(CONDITIONS)[: self.num_conditions]

    @property
    def mentioned_sizes(self) -> range:
        """How many items a dialogue mentions: from as many as are required (so that their number reveals nothing) to three more."""
        return range(self.num_required, min(self.num_items - 1, self.num_required + _MOST_EXTRA_TOLD) + 1)

    def draw_protocol(self, rng: random.Random) -> tuple[str, ...]:
        """Any set of required items, sorted by name."""
        return tuple(sorted(rng.sample(self.items, self.num_required)))

    def draw_mentioned(self, rng: random.Random, required: tuple[str, ...]) -> tuple[str, ...]:
        """First the label, then how many items are mentioned, then which: all sets of that size that fit are equally likely."""
        stop, size = rng.random() < STOP_SHARE, rng.choice(self.mentioned_sizes)
        if stop:
            others = [name for name in self.items if name not in required]
            mentioned = [*required, *rng.sample(others, size - len(required))]
        else:
            mentioned = rng.sample(self.items, size)
            while set(required) <= set(mentioned):
                mentioned = rng.sample(self.items, size)
        rng.shuffle(mentioned)
        return tuple(mentioned)

    def draw_patient(self, rng: random.Random, required: tuple[str, ...], condition: str) -> ClinicTask:
        """A dialogue with a patient who has that condition."""
        mentioned = self.draw_mentioned(rng, required)
        return ClinicTask(
            condition=condition,
            opening=rng.randrange(len(CONDITIONS[condition])),
            mentioned=mentioned,
            phrasing=tuple(rng.randrange(6) for _ in mentioned),
            required=required,
            priority=tuple(rng.sample(self.items, self.num_items)),
        )

    def patients(self, split: Split, world_seed: int, num_tasks: int) -> list[ClinicTask]:
        """N patients of the split in one clinic; each depends on the clinic and its own number only."""
        required = self.draw_protocol(random.Random(derive_seed("learn2ask clinic", world_seed)))
        drawn: list[ClinicTask] = []
        for n in range(num_tasks):
            rng = random.Random(derive_seed("learn2ask patient", world_seed, n))
            while True:
                task = self.draw_patient(rng, required, rng.choice(self.conditions))
                texts = [task.condition, str(task.opening), *task.mentioned, *map(str, task.phrasing)]
                if split_of_text(" ".join(texts)) is split:  # whatever the clinic requires
                    break
            drawn.append(task)
        return drawn

    def weights(self, mentioned: tuple[str, ...], known: Mapping[str, bool]) -> dict[tuple[str, ...], float]:
        """Posterior probability of each protocol that agrees with the known facts, after a dialogue that mentions these items.

        Exact for dialogues as `draw_mentioned` draws them; that a split holds only some of the dialogues is left out.
        """
        protocols = _protocols(self.items, self.num_required)
        sets = [required for required in protocols if all((n in required) == fact for n, fact in known.items())]
        size, sub = len(mentioned), len(self.items) - self.num_required
        if_stop = math.comb(sub, size - self.num_required) if size >= self.num_required else 0
        if_continue = math.comb(len(self.items), size) - if_stop
        stop, go_on = STOP_SHARE / max(1, if_stop), (1 - STOP_SHARE) / max(1, if_continue)
        raw = {required: stop if set(required) <= set(mentioned) else go_on for required in sets}
        total = sum(raw.values())
        return {required: weight / total for required, weight in raw.items()} if total else {}


def content_of(named: tuple[str, ...], missing: tuple[str, ...]) -> float:
    """How well a question that names these items fits what is missing, by rule.

    1 if it names one or two items and all are missing; 0.5 if one of two is missing, or if it names a single item whose kin is
    missing; else 0. Three items or more are no question but a questionnaire.

    >>> content_of(("fever",), ("fever",)), content_of(("pain",), ("fever",)), content_of(("sleep",), ("fever",))
    (1.0, 0.5, 0.0)
    """
    hits = sum(name in missing for name in named)
    if not 1 <= len(named) <= 2:
        return 0.0
    if hits == len(named):
        return 1.0
    return 0.5 if hits or (len(named) == 1 and kin_of(named[0]) in missing) else 0.0


def turns_of(task: ClinicTask) -> tuple[tuple[str, str], ...]:
    """The dialogue as turns: the complaint, then item by item, asked for or not."""
    turns: list[tuple[str, str]] = [("user", CONDITIONS[task.condition][task.opening])]
    for name, phrase in zip(task.mentioned, task.phrasing, strict=True):
        item = BY_NAME[name]
        if phrase % 2:
            turns.append(("assistant", item.question))
        turns.append(("user", item.tells[phrase // 2]))
    return tuple(turns)


@lru_cache(maxsize=64)
def _protocols(items: tuple[str, ...], num_required: int) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(sorted(combination)) for combination in itertools.combinations(items, num_required))
