"""Tasks in one app: shop, payments, music, travel."""

from cod_lightning.envs.apps import schema as s
from cod_lightning.envs.apps.person import ARTISTS, ERRANDS, GENRES, TOPICS
from cod_lightning.envs.apps.templates.base import Draw, Parts, Template, Truth, by_name, rows


class BuyGoods(Template):
    text = "Order {count} x '{product}', paid and delivered as always."
    apps, slots = ("shop",), ("card", "address")

    def draw(self, draw: Draw) -> Parts:
        return {"count": draw.of("1", "2", "3"), "product": draw.one(s.Product).name}

    def solve(self, do, p):
        card = yield from do.fact("card")
        address = yield from do.fact("address")
        product = yield from do.one("shop.products", query=p["product"])
        yield from do("shop.add_to_cart", product_id=product["id"], quantity=int(p["count"]))
        yield from do("shop.checkout", card=card, address=address)

    def expected(self, end: Truth, p: Parts) -> None:
        end.ordered(p["product"], int(p["count"]))


class CancelOrders(Template):
    text = "Cancel all my orders that are placed but not yet shipped."
    apps = ("shop",)

    def draw(self, draw: Draw) -> Parts:
        return {}

    def solve(self, do, p):
        orders = yield from do.all("shop.orders", status="placed")
        yield from do.batch([("shop.cancel_order", {"id": order["id"]}) for order in orders])

    def expected(self, end: Truth, p: Parts) -> None:
        for order in end.rows(s.Order, status="placed"):
            end.edit(order, status="cancelled")
            end.paid(-end.row(s.Product, id=order.product_id).price * order.quantity)


class SendMoney(Template):
    text = "Send {amount} euros to {email} for '{note}', paid as always."
    apps, slots = ("payments",), ("card",)

    def draw(self, draw: Draw) -> Parts:
        return {
            "amount": str(draw.rng.randint(5, 99)), "email": draw.one(s.Contact).email, "note": draw.of(*ERRANDS).lower()
        }  # fmt: skip

    def solve(self, do, p):
        card = yield from do.fact("card")
        yield from do("payments.send", to=p["email"], amount=int(p["amount"]), card=card, note=p["note"])

    def expected(self, end: Truth, p: Parts) -> None:
        end.transferred(p["email"], int(p["amount"]), p["note"])


class PayRequest(Template):
    text = "Pay the request for '{note}', as always, and decline all other requests for money."
    apps, slots = ("payments",), ("card",)
    many_calls = True

    def draw(self, draw: Draw) -> Parts:
        return {"note": draw.one(s.PaymentRequest).note}

    def solve(self, do, p):
        card = yield from do.fact("card")
        found = yield from do.all("payments.requests")
        others = [("payments.decline", {"id": r["id"]}) for r in found if r["note"] != p["note"]]
        mine = [("payments.approve", {"id": r["id"], "card": card}) for r in found if r["note"] == p["note"]]
        yield from do.batch([*mine, *others])

    def expected(self, end: Truth, p: Parts) -> None:
        for request in end.rows(s.PaymentRequest, to=end.person.email, status="open"):
            mine = request.note == p["note"]
            end.edit(request, status="paid" if mine else "declined")
            if mine:
                end.transferred(request.sender, request.amount, request.note)


class SumTransfers(Template):
    text = "How many euros did I send to {email} in all? Answer with the number."
    apps = ("payments",)

    def draw(self, draw: Draw) -> Parts:
        return {"email": draw.one(s.Transfer).to}

    def solve(self, do, p):
        found = yield from do.all("payments.transfers", to=p["email"])
        return sum(one["amount"] for one in found)

    def expected(self, end: Truth, p: Parts) -> None:
        end.answer = str(sum(one.amount for one in end.rows(s.Transfer, to=p["email"])))


class ArtistPlaylist(Template):
    text = "Make a playlist '{title}' of all songs by '{artist}', in the order in which the app lists them."
    apps = ("music",)
    many_calls = True

    def draw(self, draw: Draw) -> Parts:
        return {"title": f"{draw.of(*TOPICS)} mix", "artist": draw.one(s.Song, artist=draw.of(*ARTISTS)).artist}

    def solve(self, do, p):
        songs = yield from do.all("music.songs", artist=p["artist"])
        made = yield from do("music.create_playlist", title=p["title"])
        yield from do.batch([("music.add_song", {"id": made["id"], "song_id": song["id"]}) for song in songs])

    def expected(self, end: Truth, p: Parts) -> None:
        end.add(s.Playlist(title=p["title"], songs=tuple(song.id for song in end.rows(s.Song, artist=p["artist"]))))


class LikeGenre(Template):
    text = "Like all {genre} songs that I do not like yet."
    apps = ("music",)
    many_calls = True

    def draw(self, draw: Draw) -> Parts:
        genre, liked = draw.of(*GENRES), {like.song_id for like in draw.db.all(s.Like)}
        return {"genre": draw.of(*(song.genre for song in rows(draw.db, s.Song, genre=genre) if song.id not in liked))}

    def solve(self, do, p):
        songs = yield from do.all("music.songs", genre=p["genre"])
        liked = yield from do.all("music.likes")
        new = [song["id"] for song in songs if song["id"] not in {one["id"] for one in liked}]
        yield from do.batch([("music.like", {"song_id": id}) for id in new])

    def expected(self, end: Truth, p: Parts) -> None:
        liked = {like.song_id for like in end.rows(s.Like)}
        for song in end.rows(s.Song, genre=p["genre"]):
            if song.id not in liked:
                end.add(s.Like(song_id=song.id))


class BookTrip(Template):
    text = "Book the cheapest {kind} to {city} on {day} for {count}, paid as always."
    apps, slots = ("travel",), ("card",)

    def draw(self, draw: Draw) -> Parts:
        offer = draw.one(s.Offer)
        return {"kind": offer.kind, "city": offer.destination, "day": offer.departs[:10], "count": draw.of("1", "2")}

    def solve(self, do, p):
        card = yield from do.fact("card")
        offer = yield from do.one("travel.offers", kind=p["kind"], destination=p["city"], day=p["day"])
        yield from do("travel.book", offer_id=offer["id"], card=card, travellers=int(p["count"]))

    def expected(self, end: Truth, p: Parts) -> None:
        offers = end.rows(s.Offer, kind=p["kind"], destination=p["city"])
        offer = min((o for o in offers if o.departs.startswith(p["day"])), key=lambda o: (o.price, o.id))
        end.booked(offer, int(p["count"]))


class BookTripLater(BookTrip):
    """The day has to be asked for."""

    text = "Book the cheapest {kind} to {city} for {count}, paid as always; ask me for the day."
    withheld = ("day",)


class CancelTrip(Template):
    text = "Cancel my booking of a {kind} to {city}."
    apps = ("travel",)

    def draw(self, draw: Draw) -> Parts:
        offer = draw.one(s.Offer, id=draw.one(s.Booking).offer_id)
        return {"kind": offer.kind, "city": offer.destination}

    def solve(self, do, p):
        offers = yield from do.all("travel.offers", kind=p["kind"], destination=p["city"])
        found = yield from do.all("travel.bookings")
        (id,) = [one["id"] for one in found if one["offer_id"] in [offer["id"] for offer in offers]]
        yield from do("travel.cancel", id=id)

    def expected(self, end: Truth, p: Parts) -> None:
        offers = {offer.id: offer for offer in end.rows(s.Offer, kind=p["kind"], destination=p["city"])}
        (booking,) = [one for one in end.rows(s.Booking) if one.offer_id in offers]
        offer = offers[booking.offer_id]
        end.edit(booking, status="cancelled")
        end.edit(offer, seats=offer.seats + booking.travellers)
        end.paid(-offer.price * booking.travellers)


LEISURE = by_name(
    (
        BuyGoods, CancelOrders, SendMoney, PayRequest, SumTransfers, ArtistPlaylist, LikeGenre, BookTrip,
        BookTripLater, CancelTrip,
    )
)  # fmt: skip
