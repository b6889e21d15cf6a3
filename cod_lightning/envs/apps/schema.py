"""What the apps keep: a class for every table. Days are `2026-03-05`, times `2026-03-05 14:00`, prices whole euros."""

from typing import Annotated

from cod_lightning.envs.apps.database import Row

Day = Annotated[str, "day such as 2026-03-05"]
Time = Annotated[str, "time such as 2026-03-05 14:00"]


class Mail(Row, frozen=True, kw_only=True):
    folder: str
    sender: str
    to: str
    subject: str
    body: str
    at: Time
    unread: bool = False
    starred: bool = False


class Event(Row, frozen=True, kw_only=True):
    title: str
    starts: Time
    """On the calendar's clock."""
    minutes: int
    place: str = ""
    guests: tuple[str, ...] = ()


class Contact(Row, frozen=True, kw_only=True):
    name: str
    email: str
    phone: str
    label: str = ""
    """What they are to the person: sister, landlord, ..."""
    city: str = ""


class File(Row, frozen=True, kw_only=True):
    folder: str
    name: str
    text: str
    shared_with: tuple[str, ...] = ()


class Product(Row, frozen=True, kw_only=True):
    name: str
    category: str
    price: int
    stock: int


class CartLine(Row, frozen=True, kw_only=True):
    product_id: int
    quantity: int


class Order(Row, frozen=True, kw_only=True):
    product_id: int
    quantity: int
    card: str
    address: str
    placed: Day
    status: str = "placed"


class Address(Row, frozen=True, kw_only=True):
    label: str
    street: str


class Card(Row, frozen=True, kw_only=True):
    name: str
    balance: int


class Transfer(Row, frozen=True, kw_only=True):
    to: str
    amount: int
    card: str
    note: str
    on: Day


class PaymentRequest(Row, frozen=True, kw_only=True):
    sender: str
    to: str
    amount: int
    note: str
    status: str = "open"


class Note(Row, frozen=True, kw_only=True):
    title: str
    text: str
    tag: str = ""
    pinned: bool = False


class Song(Row, frozen=True, kw_only=True):
    title: str
    artist: str
    genre: str
    year: int


class Playlist(Row, frozen=True, kw_only=True):
    title: str
    songs: tuple[int, ...] = ()


class Like(Row, frozen=True, kw_only=True):
    song_id: int


class Message(Row, frozen=True, kw_only=True):
    phone: str
    """Of the other side."""
    incoming: bool
    text: str
    at: Time
    unread: bool = False


class Offer(Row, frozen=True, kw_only=True):
    kind: str
    origin: str
    destination: str
    departs: Time
    price: int
    seats: int


class Booking(Row, frozen=True, kw_only=True):
    offer_id: int
    travellers: int
    card: str
    status: str = "booked"


class Todo(Row, frozen=True, kw_only=True):
    title: str
    due: Day
    project: str = ""
    done: bool = False


class Employee(Row, frozen=True, kw_only=True):
    name: str
    email: str
    title: str
    team: str


class Room(Row, frozen=True, kw_only=True):
    name: str
    seats: int
