"""Flights, trains and hotels."""

from collections.abc import Iterable
from typing import Literal

from msgspec.structs import replace

from cod_lightning.envs.apps.api import ApiError, App, AppDesk, find
from cod_lightning.envs.apps.charges import charge, refund
from cod_lightning.envs.apps.schema import Booking, Offer

travel = App("travel", "Flights, trains and hotels, booked with a card.")
travel.shows("offer", Offer)
travel.shows("booking", Booking)


@travel.lists
def offers(
    desk: AppDesk, kind: Literal["flight", "train", "hotel", ""] = "", destination: str = "", day: str = ""
) -> Iterable[Offer]:
    """Offers of a kind, to a city, on a day, the cheapest first."""
    rows = desk.db.all(Offer)
    found = (
        o for o in rows if kind in ("", o.kind) and destination in ("", o.destination) and o.departs.startswith(day)
    )
    return sorted(found, key=lambda o: (o.price, o.id))


travel.values("destinations", Offer, "destination", "Cities with an offer.")


@travel.lists
def bookings(desk: AppDesk, status: str = "booked") -> Iterable[Booking]:
    """Bookings with this status."""
    return (b for b in desk.db.all(Booking) if b.status == status)


@travel.writes
def book(desk: AppDesk, offer_id: int, card: str, travellers: int = 1) -> Booking:
    """Books an offer."""
    offer = find(desk, Offer, offer_id)
    if not 1 <= travellers <= offer.seats:
        raise ApiError(409, f"travellers is {travellers}; {offer.seats} seats are free")
    charge(desk, card, offer.price * travellers)
    desk.db.put(replace(offer, seats=offer.seats - travellers))
    return desk.db.add(Booking(offer_id=offer_id, travellers=travellers, card=card))


@travel.writes
def cancel(desk: AppDesk, id: int) -> Booking:
    """Cancels a booking; its price goes back to its card, its seats are free."""
    booking = find(desk, Booking, id)
    if booking.status != "booked":
        raise ApiError(409, f"booking {id} is {booking.status}")
    offer = find(desk, Offer, booking.offer_id)
    refund(desk, booking.card, offer.price * booking.travellers)
    desk.db.put(replace(offer, seats=offer.seats + booking.travellers))
    return desk.db.put(replace(booking, status="cancelled"))
