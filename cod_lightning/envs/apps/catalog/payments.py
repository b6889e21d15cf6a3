"""Cards, transfers and requests for money."""

from collections.abc import Iterable

from msgspec.structs import replace

from cod_lightning.envs.apps.api import ApiError, App, AppDesk, find
from cod_lightning.envs.apps.charges import charge
from cod_lightning.envs.apps.schema import Card, PaymentRequest, Transfer

payments = App("payments", "Cards, transfers to mail addresses, requests for money.")
payments.shows("card", Card)
payments.shows("transfer", Transfer)
payments.shows("request", PaymentRequest)


@payments.lists
def cards(desk: AppDesk) -> Iterable[Card]:
    """The person's cards."""
    return desk.db.all(Card)


@payments.lists
def transfers(desk: AppDesk, to: str = "") -> Iterable[Transfer]:
    """Transfers, newest first, to this address."""
    return sorted((t for t in desk.db.all(Transfer) if to in ("", t.to)), key=lambda t: (t.on, t.id), reverse=True)


@payments.reads
def spent(desk: AppDesk, card: str = "") -> dict[str, int]:
    """The sum of all transfers, of one card if it is given."""
    return {"amount": sum(t.amount for t in desk.db.all(Transfer) if card in ("", t.card))}


def _pay(desk: AppDesk, to: str, amount: int, card: str, note: str) -> Transfer:
    if not amount > 0 or "@" not in to:
        raise ApiError(422, "a transfer needs a mail address and an amount above 0")
    charge(desk, card, amount)
    return desk.db.add(Transfer(to=to, amount=amount, card=card, note=note, on=desk.now[:10]))


@payments.writes
def send(desk: AppDesk, to: str, amount: int, card: str, note: str = "") -> Transfer:
    """Sends money from a card to a mail address."""
    return _pay(desk, to, amount, card, note)


@payments.lists
def requests(desk: AppDesk, status: str = "open") -> Iterable[PaymentRequest]:
    """Requests that others made, with this status."""
    return (r for r in desk.db.all(PaymentRequest) if r.status == status and r.to == desk.email)


def _answered(desk: AppDesk, id: int, status: str) -> PaymentRequest:
    request = find(desk, PaymentRequest, id)
    if request.status != "open" or request.to != desk.email:
        raise ApiError(409, f"request {id} cannot be answered")
    return desk.db.put(replace(request, status=status))


@payments.writes
def approve(desk: AppDesk, id: int, card: str) -> Transfer:
    """Pays a request with a card; the transfer has the request's note."""
    request = _answered(desk, id, "paid")
    return _pay(desk, request.sender, request.amount, card, request.note)


@payments.writes
def decline(desk: AppDesk, id: int) -> PaymentRequest:
    """Refuses a request."""
    return _answered(desk, id, "declined")


@payments.writes
def ask(desk: AppDesk, email: str, amount: int, note: str = "") -> PaymentRequest:
    """Asks an address for money."""
    return desk.db.add(PaymentRequest(sender=desk.email, to=email, amount=amount, note=note))


@payments.writes
def remind(desk: AppDesk, id: int) -> PaymentRequest:
    """Asks again for money that was asked for."""
    request = find(desk, PaymentRequest, id)
    if request.sender != desk.email or request.status != "open":
        raise ApiError(409, f"request {id} is not an open one of yours")
    return desk.db.put(replace(request, note=f"{request.note} (reminder)"))
