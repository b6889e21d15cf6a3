"""A shop with a cart, orders and addresses."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from cod_lightning.envs.apps.api import ApiError, App, AppDesk, find
from cod_lightning.envs.apps.charges import charge, refund
from cod_lightning.envs.apps.schema import Address, CartLine, Order, Product

shop = App("shop", "Goods, a cart, orders; orders go to one of the person's addresses, named by its label.")
shop.shows("product", Product)
shop.shows("order", Order)
shop.creates("add_address", Address, "label street")
shop.deletes("remove_address", Address)


@shop.lists
def products(desk: AppDesk, query: str = "", category: str = "", most: int | None = None) -> Iterable[Product]:
    """Goods whose name contains the query, of a category, that cost at most so much."""
    rows = desk.db.all(Product)
    return (
        p
        for p in rows
        if query.lower() in p.name.lower() and category in ("", p.category) and (most is None or p.price <= most)
    )


shop.values("categories", Product, "category", "Categories of goods.")


@shop.lists
def addresses(desk: AppDesk) -> Iterable[Address]:
    """Where orders can be sent."""
    return desk.db.all(Address)


@shop.lists
def cart(desk: AppDesk) -> Iterable[CartLine]:
    """What is in the cart."""
    return desk.db.all(CartLine)


@shop.writes
def add_to_cart(desk: AppDesk, product_id: int, quantity: int = 1) -> CartLine:
    """Puts goods into the cart."""
    product = find(desk, Product, product_id)
    left = product.stock - sum(line.quantity for line in desk.db.all(CartLine) if line.product_id == product_id)
    if not 1 <= quantity <= left:
        raise ApiError(409, f"quantity is {quantity}; {left} are in stock")
    return desk.db.add(CartLine(product_id=product_id, quantity=quantity))


@shop.writes
def remove_from_cart(desk: AppDesk, id: int) -> dict[str, int]:
    """Takes a line out of the cart."""
    desk.db.remove(find(desk, CartLine, id))
    return {"removed": id}


@shop.writes
def clear_cart(desk: AppDesk) -> dict[str, int]:
    """Empties the cart."""
    lines = list(desk.db.all(CartLine))
    for line in lines:
        desk.db.remove(line)
    return {"removed": len(lines)}


@shop.writes
def checkout(desk: AppDesk, card: str, address: str) -> list[Order]:
    """Orders all that is in the cart, paid with a card and sent to an address."""
    lines = [(line, find(desk, Product, line.product_id)) for line in desk.db.all(CartLine)]
    if not lines:
        raise ApiError(409, "the cart is empty")
    if all(address != known.label for known in desk.db.all(Address)):
        raise ApiError(404, "no address has that label")
    charge(desk, card, sum(product.price * line.quantity for line, product in lines))
    placed: list[Order] = []
    for line, product in lines:
        desk.db.remove(line)
        desk.db.put(replace(product, stock=find(desk, Product, product.id).stock - line.quantity))
        placed.append(
            desk.db.add(
                Order(product_id=product.id, quantity=line.quantity, card=card, address=address, placed=desk.now[:10])
            )
        )
    return placed


@shop.lists
def orders(desk: AppDesk, status: str = "") -> Iterable[Order]:
    """Orders, newest first, with this status."""
    found = [o for o in desk.db.all(Order) if status in ("", o.status)]
    return sorted(found, key=lambda o: (o.placed, o.id), reverse=True)


def _end(desk: AppDesk, id: int, was: str, becomes: str) -> Any:
    order = find(desk, Order, id)
    if order.status != was:
        raise ApiError(409, f"order {id} is {order.status}; expected {was}")
    refund(desk, order.card, find(desk, Product, order.product_id).price * order.quantity)
    return desk.db.put(replace(order, status=becomes))


@shop.writes
def cancel_order(desk: AppDesk, id: int) -> Any:
    """Cancels an order that is placed; its price goes back to its card."""
    return _end(desk, id, "placed", "cancelled")


@shop.writes
def return_order(desk: AppDesk, id: int) -> Any:
    """Sends back an order that is delivered; its price goes back to its card."""
    return _end(desk, id, "delivered", "returned")
