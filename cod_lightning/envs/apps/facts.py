"""What a pack hides: the quirks of its site and the habits of its person, and the one sentence that states each.

Players' notes, the person's answers and the words after a task all use that sentence, so one parser reads them all.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

QUIRKS = ("page", "zone", "rate", "moved", "field")
HABITS = ("card", "address", "boss", "sign", "minutes")
CARDS = ("blue", "gold", "joint", "travel")
ADDRESSES = ("home", "office", "parents", "studio")
TITLES = ("director", "head", "lead", "owner")
CLOSINGS = ("Best", "Cheers", "Regards", "Yours")
CHOICES: dict[str, tuple[str, ...]] = {
    "page": ("2", "3", "4"),
    "zone": ("-5", "-2", "+2", "+3", "+6", "+0"),
    "rate": ("2", "3", "4"),
    "moved": ("sign_in", "authorize", "open_session", "enter"),
    "field": tuple(
        f"{name}={value}" for name in ("channel", "origin", "mode", "scope") for value in ("web", "desk", "agent")
    ),
    "card": CARDS,
    "address": ADDRESSES,
    "boss": TITLES,
    "sign": CLOSINGS,
    "minutes": ("15", "30", "45", "60"),
}
"""Values of each slot."""
USUAL_ZONE = "+0"


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenFacts:
    """Hidden facts of a pack; also what a player believes. An empty slot is the usual way of a site, or not known."""

    page: str = ""
    """Most items of a page of a list; documented are 10."""
    zone: str = ""
    """Hours by which the calendar's clock is ahead of the person's; usually `+0`."""
    rate: str = ""
    """Calls that are answered in one turn; usually as many as are made."""
    moved: str = ""
    """What `login` is called at this site, in every app."""
    field: str = ""
    """An argument that every call which changes something needs, and that no documentation has."""
    card: str = ""
    """What the person pays with."""
    address: str = ""
    """Where deliveries go."""
    boss: str = ""
    """The title of whom the person calls the boss."""
    sign: str = ""
    """The closing of what the person writes."""
    minutes: str = ""
    """How long meetings take."""

    @property
    def found(self) -> tuple[str, ...]:
        """Names of the slots that are not empty."""
        return tuple(name for name in SLOTS if getattr(self, name))


SLOTS = tuple(field.name for field in fields(HiddenFacts))
_SENTENCES = {
    "page": "Lists have {} items a page.",
    "zone": "The calendar's clock is {} h from mine.",
    "rate": "Only {} calls a turn are answered.",
    "moved": "login is called {} here.",
    "field": "Changes need the argument {}.",
    "card": "I pay with the {} card.",
    "address": "Deliveries go to the {} address.",
    "boss": "The boss is the {}.",
    "sign": "I sign with {}.",
    "minutes": "My meetings take {} minutes.",
}
_PATTERNS = {
    slot: re.compile(re.escape(text).replace(r"\{\}", rf"({'|'.join(map(re.escape, CHOICES[slot]))})"))
    for slot, text in _SENTENCES.items()
}


def sentence(slot: str, value: str) -> str:
    """The statement of one fact.

    >>> sentence("card", "gold")
    'I pay with the gold card.'
    """
    return _SENTENCES[slot].format(value)


def write_facts(facts: HiddenFacts) -> str:
    """A line for every slot that is not empty."""
    return "\n".join(f"- {sentence(slot, getattr(facts, slot))}" for slot in facts.found)


def read_facts(text: str) -> HiddenFacts:
    """What sentences of the text state; the last one of a slot wins.

    >>> read_facts("I pay with the gold card. Lists have 3 items a page.").found
    ('page', 'card')
    """
    found = {slot: pattern.findall(text) for slot, pattern in _PATTERNS.items()}
    return HiddenFacts(**{slot: values[-1] for slot, values in found.items() if values})


def draw_facts(rng: random.Random, num_quirks: int) -> HiddenFacts:
    """A site with that many quirks, and a person, each of whose habits is drawn."""
    return draw_slots(rng, HiddenFacts(zone=USUAL_ZONE), (*rng.sample(QUIRKS, num_quirks), *HABITS))


def draw_slots(rng: random.Random, facts: HiddenFacts, slots: Sequence[str]) -> HiddenFacts:
    """The facts with another draw of these slots."""
    return replace(facts, **{slot: rng.choice(CHOICES[slot]) for slot in slots})
