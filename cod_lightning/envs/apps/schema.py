"""What the apps keep: a class for every table. Days are `2026-03-05`, times `2026-03-05 14:00`, prices whole euros."""

from typing import Annotated

from cod_lightning.envs.apps.database import TableRow

Day = Annotated[str, "day such as 2026-03-05"]
Time = Annotated[str, "time such as 2026-03-05 14:00"]


class Mail(TableRow, frozen=True, kw_only=True):
    folder: str
    sender: str
    to: str
    subject: str
    body: str
    at: Time
    unread: bool = False
    starred: bool = False


class Event(TableRow, frozen=True, kw_only=True):
    title: str
    starts: Time
    """On the calendar's clock."""
    minutes: int
    place: str = ""
    guests: tuple[str, ...] = ()


class Contact(TableRow, frozen=True, kw_only=True):
    name: str
    email: str
    phone: str
    label: str = ""
    """What they are to the person: sister, landlord, ..."""
    city: str = ""


class TextFile(TableRow, frozen=True, kw_only=True):
    folder: str
    name: str
    text: str
    shared_with: tuple[str, ...] = ()


class Product(TableRow, frozen=True, kw_only=True):
    name: str
    category: str
    price: int
    stock: int


class CartLine(TableRow, frozen=True, kw_only=True):
    product_id: int
    quantity: int


class Order(TableRow, frozen=True, kw_only=True):
    product_id: int
    quantity: int
    card: str
    address: str
    placed: Day
    status: str = "placed"


class Address(TableRow, frozen=True, kw_only=True):
    label: str
    street: str


class Card(TableRow, frozen=True, kw_only=True):
    name: str
    balance: int


class Transfer(TableRow, frozen=True, kw_only=True):
    to: str
    amount: int
    card: str
    note: str
    on: Day


class PaymentRequest(TableRow, frozen=True, kw_only=True):
    sender: str
    to: str
    amount: int
    note: str
    status: str = "open"


class ShortNote(TableRow, frozen=True, kw_only=True):
    title: str
    text: str
    tag: str = ""
    pinned: bool = False


class Song(TableRow, frozen=True, kw_only=True):
    title: str
    artist: str
    genre: str
    year: int


class Playlist(TableRow, frozen=True, kw_only=True):
    title: str
    songs: tuple[int, ...] = ()


class Like(TableRow, frozen=True, kw_only=True):
    song_id: int


class TextMessage(TableRow, frozen=True, kw_only=True):
    phone: str
    """Of the other side."""
    incoming: bool
    text: str
    at: Time
    unread: bool = False


class Offer(TableRow, frozen=True, kw_only=True):
    kind: str
    origin: str
    destination: str
    departs: Time
    price: int
    seats: int


class Booking(TableRow, frozen=True, kw_only=True):
    offer_id: int
    travellers: int
    card: str
    status: str = "booked"


class Todo(TableRow, frozen=True, kw_only=True):
    title: str
    due: Day
    project: str = ""
    done: bool = False


class Employee(TableRow, frozen=True, kw_only=True):
    name: str
    email: str
    title: str
    team: str


class Room(TableRow, frozen=True, kw_only=True):
    name: str
    seats: int
