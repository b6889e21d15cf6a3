"""What a task template is: a sentence, a draw of its parts, a way to do it, and the changes that it asks for."""

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

from msgspec.structs import replace

from cod_lightning.envs.apps import schema as s
from cod_lightning.envs.apps.database import Change, Database, R, TableRow
from cod_lightning.envs.apps.facts import HiddenFacts
from cod_lightning.envs.apps.person import NOW, Owner, on_clock

Doing = Generator[Any, Any, Any]
"""Yields batches of calls, is sent their results."""
Parts = Mapping[str, str]
TEXTS = (
    "The plan is ready",
    "Please have a look",
    "It is done",
    "We start at nine",
    "I agree",
    "Numbers follow tomorrow",
)
TIMES = ("08:30", "10:00", "11:30", "13:00", "15:00", "16:30")


@dataclass(frozen=True)
class Draw:
    """Material for a task."""

    db: Database
    rng: random.Random

    def one(self, kind: type[R], /, **columns: Any) -> R:
        """A row with these values. Raises `IndexError` where there is none."""
        return self.rng.choice(rows(self.db, kind, **columns))

    def of(self, *values: str) -> str:
        """One of these."""
        return self.rng.choice(values)


def rows(db: Database, kind: type[R], /, **columns: Any) -> list[R]:
    """Those with these values."""
    return [row for row in db.all(kind) if all(getattr(row, name) == value for name, value in columns.items())]


class Truth:
    """The changes that a task asks for, written down with the state before it, and shorthand for what tasks have in common.

    Args:
        before: The state before the task.
        facts: What is hidden.
        person: Whose apps they are.
    """

    def __init__(self, before: Database, facts: HiddenFacts, person: Owner) -> None:
        self.before, self.facts, self.person = before, facts, person
        self.changes: list[Change] = []
        self.answer: str | None = None
        """What the person wants to hear; None where nothing was asked."""
        self.agreed: str | None = None
        """The number that the person has to confirm before money moves; None where it need not be asked."""

    def add(self, row: TableRow) -> None:
        """A new row; its id does not count."""
        self.changes.append(Change(None, row))

    def now(self, row: R) -> R:
        """The row as it shall be after the edits so far."""
        edited = (change.after for change in self.changes if change.before == row)
        return cast(R, next(edited, row))

    def edit(self, row: TableRow, **values: Any) -> None:
        """Other values in a row, which may have been edited before."""
        before = self.before.get(type(row), row.id)
        after = replace(self.now(row), **values) if before == row else replace(row, **values)
        self.changes = [change for change in self.changes if change.before is None or change.before != before]
        self.changes.append(Change(before, after))

    def remove(self, row: TableRow) -> None:
        """A row less."""
        self.changes.append(Change(row, None))

    def rows(self, kind: type[R], /, **columns: Any) -> list[R]:
        """Those with these values, before the task."""
        return rows(self.before, kind, **columns)

    def row(self, kind: type[R], /, **columns: Any) -> R:
        """The first such row."""
        return self.rows(kind, **columns)[0]

    @property
    def boss(self) -> s.Employee:
        """Whom the person calls so."""
        return self.row(s.Employee, title=self.facts.boss)

    def signed(self, text: str) -> str:
        """The text as the person would send it."""
        return signed(text, self.facts.sign, self.person.first)

    def starts(self, day: str, time: str) -> str:
        """The person's time on the calendar's clock."""
        return on_clock(f"{day} {time}", self.facts.zone)

    def sent(self, to: str, subject: str, body: str) -> None:
        """A mail more."""
        self.add(s.Mail(folder="sent", sender=self.person.email, to=to, subject=subject, body=body, at=NOW))

    def paid(self, amount: int) -> None:
        """The usual card has less."""
        card = self.now(self.row(s.Card, name=self.facts.card))
        self.edit(card, balance=card.balance - amount)

    def booked(self, offer: s.Offer, travellers: int) -> None:
        """A booking more, seats and money less."""
        self.paid(offer.price * travellers)
        self.edit(offer, seats=offer.seats - travellers)
        self.add(s.Booking(offer_id=offer.id, travellers=travellers, card=self.facts.card))

    def ordered(self, name: str, quantity: int) -> None:
        """An order more, stock and money less."""
        product = self.row(s.Product, name=name)
        self.paid(product.price * quantity)
        self.edit(product, stock=product.stock - quantity)
        row = s.Order(
            product_id=product.id, quantity=quantity, card=self.facts.card, address=self.facts.address, placed=NOW[:10]
        )
        self.add(row)

    def transferred(self, to: str, amount: int, note: str) -> None:
        """A transfer more, money less."""
        self.paid(amount)
        self.add(s.Transfer(to=to, amount=amount, card=self.facts.card, note=note, on=NOW[:10]))


def signed(text: str, closing: str, first: str) -> str:
    """The text with its last line."""
    return f"{text}\n{closing}, {first}"


class Template(ABC):
    """A kind of task. Its parts are texts; `text` names those that the person states."""

    text: ClassVar[str]
    apps: ClassVar[tuple[str, ...]]
    """Apps that it is done in."""
    many_calls: ClassVar[bool] = False
    """Whether informed play takes 5.5 calls or more on average, log-ins included."""
    slots: ClassVar[tuple[str, ...]] = ()
    """Facts without which it cannot be done right."""
    withheld: ClassVar[tuple[str, ...]] = ()
    """Parts that the person states only when asked."""
    confirmed: ClassVar[str] = ""
    """The part with the number that the person wants to confirm before money moves; `agreed` is then the one it confirms."""

    @property
    def name(self) -> str:
        """As options and reports call it."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def difficulty(self) -> int:
        """1 to 3: the number of apps, and one more for many calls."""
        return min(3, len(self.apps) + self.many_calls)

    @abstractmethod
    def draw(self, draw: Draw) -> Parts:
        """Parts of a task at this state. Raises `IndexError` where there is no material."""

    @abstractmethod
    def solve(self, do: Any, p: Parts) -> Doing:
        """How to do it through the apps; `do` is an `AppsAgent`."""

    @abstractmethod
    def expected(self, end: Truth, p: Parts) -> None:
        """Write down what has to change."""

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        seen: set[str] = set()
        text = ""
        for piece in re.split(r"(\{\w+\})", self.text):
            name = piece[1:-1]
            if not piece.startswith("{"):
                text += re.escape(piece)
            else:
                letters = "[^']+" if text.endswith("'") else r"[\w@.:-]+"
                text += f"(?P={name})" if name in seen else f"(?P<{name}>{letters})"
                seen.add(name)
        return re.compile(text)

    def stated(self, parts: Parts) -> str:
        """The sentence."""
        return self.text.format_map(parts)

    def read(self, sentence: str) -> Parts | None:
        """Parts that the sentence states, if it is of this kind."""
        found = self._pattern.fullmatch(sentence)
        return found.groupdict() if found else None


def by_name(kinds: Iterable[type[Template]]) -> dict[str, Template]:
    """An object of each."""
    return {template.name: template for template in (kind() for kind in kinds)}
