"""A person with a company, family and friends, and what all apps hold about them: a pure function of a seed and the facts."""

import random
from dataclasses import dataclass
from functools import lru_cache

from cod_lightning.envs.apps import schema as s
from cod_lightning.envs.apps.database import Database
from cod_lightning.envs.apps.facts import ADDRESSES, CARDS, CLOSINGS, TITLES, HiddenFacts
from cod_lightning.envs.base import Unchanging
from cod_lightning.seeds import derive_seed

NOW = "2026-03-02 09:00"
DAYS = tuple(f"2026-03-{day:02}" for day in range(3, 15))
FIRST = (
    "Ada", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gus", "Hana", "Ivo", "June", "Kai", "Lea", "Mia", "Nils", "Olga", "Paul",
    "Quin", "Rosa", "Sami", "Tara", "Uma", "Vera", "Wim", "Yara", "Zoe",
)  # fmt: skip
LAST = (
    "Abel", "Berg", "Cole", "Dahl", "Eder", "Fox", "Gray", "Hart", "Ito", "Jung", "Koch", "Lund", "Moss", "North", "Ortiz",
    "Page", "Reed", "Stone", "Tran", "Voss", "Weiss", "York",
)  # fmt: skip
LABELS = ("sister", "brother", "partner", "landlord", "doctor", "neighbour", "coach")
CITIES = ("Oslo", "Porto", "Turin", "Ghent", "Lyon", "Graz", "Bergen", "Malmo")
TEAMS = ("design", "sales", "support")
TOPICS = (
    "Budget", "Invoice", "Roadmap", "Contract", "Survey", "Newsletter", "Workshop", "Inventory", "Launch", "Audit", "Review",
    "Handover", "Release", "Training", "Schedule", "Feedback", "Parking", "Canteen", "Holidays", "Insurance",
)  # fmt: skip
GOODS = {
    "kitchen": ("Kettle", "Teapot", "Pan", "Toaster"),
    "office": ("Lamp", "Stapler", "Notebook", "Desk mat"),
    "sport": ("Racket", "Yoga mat", "Jersey", "Bottle"),
    "garden": ("Rake", "Trowel", "Planter", "Hose"),
}
MEETINGS = ("Standup", "Planning", "Retro", "Dentist", "Yoga", "Lunch", "Interview", "Demo", "Choir", "Haircut")
ERRANDS = (
    "Call plumber",
    "Buy stamps",
    "Renew passport",
    "Water plants",
    "Pay rent",
    "Fix bike",
    "Book table",
    "Sort photos",
)
PROJECTS = ("house", "work", "club")
FOLDERS = ("reports", "drafts", "private")
GENRES = ("jazz", "folk", "techno")
ARTISTS = ("The Larks", "Nora Blue", "Quartz", "Old Harbour", "Kite")


@dataclass(frozen=True, slots=True)
class Owner(Unchanging):
    """The user of all apps."""

    seed: int
    name: str
    email: str

    @property
    def first(self) -> str:
        """The first name."""
        return self.name.split()[0]

    def password(self, app: str) -> str:
        """For the log-in of an app."""
        return "".join(
            random.Random(derive_seed("password", self.seed, app)).choices("abcdefghkmnpqrstuvwxyz23456789", k=8)
        )


def on_clock(time: str, zone: str) -> str:
    """A time of the person, not near midnight, on a clock that is `zone` hours ahead.

    >>> on_clock("2026-03-05 14:00", "-2")
    '2026-03-05 12:00'
    """
    day, hour, minute = time[:10], int(time[11:13]) + int(zone or 0), time[14:]
    return f"{day} {hour:02}:{minute}"


def address_of(name: str, host: str) -> str:
    """`ada.berg@HOST`."""
    return f"{name.lower().replace(' ', '.')}@{host}"


@lru_cache(maxsize=4_096)
def person_of(seed: int) -> Owner:
    """Who that is."""
    rng = random.Random(derive_seed("person", seed))
    name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
    return Owner(seed, name, address_of(name, "firm.example"))


def populated(seed: int, facts: HiddenFacts) -> Database:
    """What the apps that ship hold before a task."""
    return _Author(person_of(seed), facts, random.Random(derive_seed("apps", seed))).written()


class _Author:
    """Fills a database; habits show in what the person did before."""

    def __init__(self, person: Owner, facts: HiddenFacts, rng: random.Random) -> None:
        self.person, self.facts, self.rng, self.db = person, facts, rng, Database()

    def written(self) -> Database:
        """All tables."""
        for write in (
            self.people,
            self.shopping,
            self.money,
            self.mails,
            self.events,
            self.texts,
            self.songs,
            self.trips,
        ):
            write()
        return self.db

    def people(self) -> None:
        rng, taken = self.rng, {self.person.name}
        names = [f"{first} {last}" for first in rng.sample(FIRST, 22) for last in rng.sample(LAST, 1)]
        self.others = [name for name in dict.fromkeys(names) if name not in taken]
        titles = [*TITLES, *["clerk"] * 5]
        for name, title in zip(self.others, rng.sample(titles, len(titles)), strict=False):
            row = s.Employee(name=name, email=address_of(name, "firm.example"), title=title, team=rng.choice(TEAMS))
            self.db.add(row)
        for name, label in zip(self.others[9:], (*rng.sample(LABELS, len(LABELS)), *["friend"] * 3), strict=False):
            email, phone = address_of(name, "home.example"), f"0{rng.randint(100, 999)}-{rng.randint(1000, 9999)}"
            self.db.add(s.Contact(name=name, email=email, phone=phone, label=label, city=rng.choice(CITIES)))
        for name, seats in zip(("Alder", "Birch", "Cedar", "Elm"), rng.sample((4, 6, 8, 12, 20), 4), strict=True):
            self.db.add(s.Room(name=name, seats=seats))

    def shopping(self) -> None:
        rng, products = self.rng, []
        for category, names in GOODS.items():
            for name in names:
                row = s.Product(name=name, category=category, price=rng.randint(4, 60), stock=rng.randint(4, 9))
                products.append(self.db.add(row))
        for label in rng.sample(ADDRESSES, 4):
            self.db.add(s.Address(label=label, street=f"{rng.choice(LAST)} Street {rng.randint(1, 90)}"))
        for product, status in zip(
            rng.sample(products, 5), ("delivered", "placed", "delivered", "shipped", "placed"), strict=True
        ):
            self.db.add(
                s.Order(
                    product_id=product.id, quantity=rng.randint(1, 2), card=self.facts.card, address=self.facts.address,
                    placed=f"2026-02-{rng.randint(10, 27)}", status=status,
                )
            )  # fmt: skip

    def money(self) -> None:
        rng, contacts = self.rng, list(self.db.all(s.Contact))
        for name in rng.sample(CARDS, 4):
            self.db.add(s.Card(name=name, balance=rng.randint(900, 2_000)))
        for contact in rng.choices(contacts[:3], k=6):
            amount, on = rng.randint(5, 90), f"2026-02-{rng.randint(10, 27)}"
            self.db.add(
                s.Transfer(to=contact.email, amount=amount, card=self.facts.card, note=rng.choice(ERRANDS), on=on)
            )
        for contact, note in zip(rng.sample(contacts, 4), rng.sample(ERRANDS, 4), strict=True):
            self.db.add(
                s.PaymentRequest(sender=contact.email, to=self.person.email, amount=rng.randint(5, 90), note=note)
            )

    def mails(self) -> None:
        rng, facts = self.rng, self.facts
        senders = [employee.email for employee in self.db.all(s.Employee)]
        boss = next((e for e in self.db.all(s.Employee) if e.title == facts.boss), None)
        topics = rng.sample(TOPICS, 20)
        for n, topic in enumerate(topics[:14]):
            sender = rng.choice(senders[:4])
            text = f"The {topic.lower()} needs a look. {rng.randint(100, 999)} is the number."
            at = f"2026-02-{10 + n} {rng.randint(8, 17):02}:{rng.randint(0, 59):02}"
            row = s.Mail(
                folder="inbox",
                sender=sender,
                to=self.person.email,
                subject=topic,
                body=text,
                at=at,
                unread=rng.random() < 0.4,
            )
            self.db.add(row)
        closing = f"{facts.sign or CLOSINGS[0]}, {self.person.first}"
        for topic, to in zip(topics[14:16], (boss.email if boss else senders[0], senders[1]), strict=True):
            hello = "Hello boss" if boss and to == boss.email else "Hello"
            text = f"{hello}, here is the {topic.lower()}.\n{closing}"
            self.db.add(
                s.Mail(folder="sent", sender=self.person.email, to=to, subject=topic, body=text, at="2026-02-27 10:00")
            )

    def events(self) -> None:
        for title in self.rng.sample(MEETINGS, 8):
            day, hour = self.rng.choice(DAYS), self.rng.randint(8, 16)
            minutes = int(self.facts.minutes or 30)
            starts = on_clock(f"{day} {hour:02}:00", self.facts.zone)
            self.db.add(s.Event(title=title, starts=starts, minutes=minutes, place=self.rng.choice(("", "Alder"))))

    def texts(self) -> None:
        rng = self.rng
        for title in rng.sample(ERRANDS, 5):
            self.db.add(
                s.ShortNote(title=title, text=f"Think of {rng.choice(LAST)}.", tag=rng.choice(("idea", "list")))
            )
        for topic in rng.sample(TOPICS, 8):
            name = f"{topic.lower()}.txt"
            self.db.add(s.TextFile(folder=rng.choice(FOLDERS), name=name, text=f"{topic} {rng.randint(100, 999)}"))
        for title in ERRANDS:
            row = s.Todo(title=title, due=rng.choice(DAYS), project=rng.choice(PROJECTS), done=rng.random() < 0.25)
            self.db.add(row)
        phones = [contact.phone for contact in self.db.all(s.Contact)]
        for n, errand in enumerate(rng.sample(ERRANDS, 6)):
            text, at = f"{errand}?", f"2026-02-2{n} 18:00"
            self.db.add(
                s.TextMessage(phone=rng.choice(phones), incoming=True, text=text, at=at, unread=rng.random() < 0.5)
            )

    def songs(self) -> None:
        rng = self.rng
        pairs = [
            f"{first} {second}"
            for first in ("Blue", "Last", "Slow", "High")
            for second in ("Rain", "Road", "Light", "Tide")
        ]
        songs = [
            self.db.add(
                s.Song(title=title, artist=rng.choice(ARTISTS), genre=rng.choice(GENRES), year=rng.randint(1990, 2025))
            )
            for title in rng.sample(pairs, 12)
        ]
        self.db.add(s.Playlist(title="Morning", songs=tuple(song.id for song in rng.sample(songs, 3))))
        for song in rng.sample(songs, 3):
            self.db.add(s.Like(song_id=song.id))

    def trips(self) -> None:
        rng, last = self.rng, 0
        for city in rng.sample(CITIES, 4):
            for kind in ("flight", "train", "hotel"):
                for price in rng.sample(range(30, 200), 2):
                    departs = f"{rng.choice(DAYS[:4])} {rng.randint(6, 20):02}:30"
                    seats = rng.randint(3, 9)
                    offer = s.Offer(
                        kind=kind, origin="Home", destination=city, departs=departs, price=price, seats=seats
                    )
                    last = self.db.add(offer).id
            self.db.add(s.Booking(offer_id=last, travellers=1, card=self.facts.card))
