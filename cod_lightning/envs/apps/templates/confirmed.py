"""Tasks in which the person wants to be asked before money moves, and may then name another number; `templates` chooses them."""

from cod_lightning.envs.apps import schema as s
from cod_lightning.envs.apps.person import ERRANDS, LABELS
from cod_lightning.envs.apps.templates.base import Draw, Parts, Truth, by_name
from cod_lightning.envs.apps.templates.leisure import BuyGoods, SendMoney


class ConfirmTransfer(SendMoney):
    text = "Send {amount} euros to {email} for '{note}', paid as always. Ask me to confirm it before you pay."
    confirmed = "amount"

    def draw(self, draw: Draw) -> Parts:
        return {**self._sum(draw), "email": draw.one(s.Contact).email, "note": draw.of(*ERRANDS).lower()}

    def _sum(self, draw: Draw) -> dict[str, str]:
        """What is stated, and what is confirmed: two times of three the same."""
        no_minutes = [number for number in range(5, 100) if number % 15]  # with which another question is answered
        stated, other = map(str, draw.rng.sample(no_minutes, 2))
        return {"amount": stated, "agreed": draw.of(stated, stated, other)}

    def solve(self, do, p):
        amount = yield from do.confirmed(f"send {p['amount']} euros to {p['email']}", p["amount"])
        yield from super().solve(do, {**p, "amount": amount})

    def expected(self, end: Truth, p: Parts) -> None:
        end.agreed = p["agreed"]
        super().expected(end, {**p, "amount": p["agreed"]})


class ConfirmPayContact(ConfirmTransfer):
    text = "Send my {label} {amount} euros for '{note}', paid as always. Ask me to confirm it before you pay."
    apps = ("contacts", "payments")

    def draw(self, draw: Draw) -> Parts:
        return {"label": draw.of(*LABELS), **self._sum(draw), "note": draw.of(*ERRANDS).lower()}

    def solve(self, do, p):
        contact = yield from do.one("contacts.search", label=p["label"])
        yield from super().solve(do, {**p, "email": contact["email"]})

    def expected(self, end: Truth, p: Parts) -> None:
        super().expected(end, {**p, "email": end.row(s.Contact, label=p["label"]).email})


class ConfirmGoods(BuyGoods):
    text = "Order {count} x '{product}', paid and delivered as always. Ask me to confirm it before you pay."
    confirmed = "count"

    def draw(self, draw: Draw) -> Parts:
        stated, other = draw.rng.sample(("1", "2", "3"), 2)
        return {"count": stated, "agreed": draw.of(stated, stated, other), "product": draw.one(s.Product).name}

    def solve(self, do, p):
        count = yield from do.confirmed(f"order {p['count']} x '{p['product']}'", p["count"])
        yield from super().solve(do, {**p, "count": count})

    def expected(self, end: Truth, p: Parts) -> None:
        end.agreed = p["agreed"]
        super().expected(end, {**p, "count": p["agreed"]})


CONFIRMED = by_name((ConfirmTransfer, ConfirmPayContact, ConfirmGoods))
