"""Parcels on their way: an app of your own beside the twelve that ship, with two kinds of tasks."""

import random

from msgspec.structs import replace

from cod_lightning.envs.apps.api import ApiError, App, AppDesk, find
from cod_lightning.envs.apps.charges import charge
from cod_lightning.envs.apps.database import Database, TableRow
from cod_lightning.envs.apps.person import Owner
from cod_lightning.envs.apps.site import Extension
from cod_lightning.envs.apps.templates.base import Draw, Parts, Template, Truth


class Parcel(TableRow, frozen=True, kw_only=True):
    sender: str
    duty: int
    address: str = ""
    paid: bool = False


parcels = App("parcels", "Parcels on their way to the person.")


@parcels.lists
def list_(desk: AppDesk, sender: str = "") -> list[Parcel]:
    """Parcels on their way, from this sender."""
    return [parcel for parcel in desk.db.all(Parcel) if sender in ("", parcel.sender)]


@parcels.writes
def redirect(desk: AppDesk, id: int, address: str) -> Parcel:
    """Sends a parcel to an address, named by its label."""
    return desk.db.put(replace(find(desk, Parcel, id), address=address))


@parcels.writes
def pay_duty(desk: AppDesk, id: int, card: str) -> Parcel:
    """Pays the duty of a parcel with a card."""
    if (parcel := find(desk, Parcel, id)).paid:
        raise ApiError(409, "the duty is paid already")
    charge(desk, card, parcel.duty)
    return desk.db.put(replace(parcel, paid=True))


class RedirectParcel(Template):
    text = "Have my parcel from {sender} delivered as always."
    apps, slots = ("parcels",), ("address",)

    def draw(self, draw: Draw) -> Parts:
        return {"sender": draw.one(Parcel).sender}

    def solve(self, do, p):
        parcel = yield from do.one("parcels.list", sender=p["sender"])
        yield from do("parcels.redirect", id=parcel["id"], address=(yield from do.fact("address")))

    def expected(self, end: Truth, p: Parts) -> None:
        end.edit(end.row(Parcel, sender=p["sender"]), address=end.facts.address)


class PayDuty(RedirectParcel):
    text = "Pay the duty for my parcel from {sender}, with the usual card."
    slots = ("card",)

    def solve(self, do, p):
        card = yield from do.fact("card")
        parcel = yield from do.one("parcels.list", sender=p["sender"])
        yield from do("parcels.pay_duty", id=parcel["id"], card=card)

    def expected(self, end: Truth, p: Parts) -> None:
        end.edit(end.row(Parcel, sender=p["sender"]), paid=True)
        end.paid(end.row(Parcel, sender=p["sender"]).duty)


class Parcels(Extension):
    app, templates = parcels, (RedirectParcel, PayDuty)

    def fill(self, db: Database, person: Owner, rng: random.Random) -> None:
        for sender in rng.sample(("Acorn", "Bluebell", "Clover", "Daisy", "Elder"), 4):
            db.add(Parcel(sender=sender, duty=rng.randint(3, 40)))
