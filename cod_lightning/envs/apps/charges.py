"""Cards pay in every app that sells."""

from msgspec.structs import replace

from cod_lightning.envs.apps.api import ApiError, AppDesk
from cod_lightning.envs.apps.schema import Card


def charge(desk: AppDesk, name: str, amount: int) -> Card:
    """The card after so much was paid with it. Raises a 404 or a 402."""
    card = next((one for one in desk.db.all(Card) if one.name == name), None)
    if card is None:
        raise ApiError(404, "no card has that name")
    if card.balance < amount:
        raise ApiError(402, f"the {name} card has {card.balance}; {amount} are needed")
    return desk.db.put(replace(card, balance=card.balance - amount))


def refund(desk: AppDesk, name: str, amount: int) -> Card:
    """The card after so much was paid back."""
    return charge(desk, name, -amount)
