"""Tasks over two and three apps."""

from cod_lightning.envs.apps import schema as s
from cod_lightning.envs.apps.person import DAYS, ERRANDS, FOLDERS, LABELS, NOW, TOPICS
from cod_lightning.envs.apps.templates.base import TEXTS, TIMES, Draw, Parts, Template, Truth, by_name, signed


class MailBoss(Template):
    text = "Mail the boss with the subject '{subject}' and the text '{text}', signed as I always do."
    apps, slots = ("mail", "directory"), ("boss", "sign")

    def draw(self, draw: Draw) -> Parts:
        return {"subject": draw.of(*TOPICS), "text": draw.of(*TEXTS)}

    def solve(self, do, p):
        boss = yield from do.boss()
        closing = yield from do.fact("sign")
        yield from do("mail.send", to=boss["email"], subject=p["subject"], body=signed(p["text"], closing, do.first))

    def expected(self, end: Truth, p: Parts) -> None:
        end.sent(end.boss.email, p["subject"], end.signed(p["text"]))


class ForwardToBoss(Template):
    text = "Forward the mail '{subject}' in my inbox to the boss."
    apps, slots = ("mail", "directory"), ("boss",)

    def draw(self, draw: Draw) -> Parts:
        return {"subject": draw.one(s.Mail, folder="inbox").subject}

    def solve(self, do, p):
        boss = yield from do.boss()
        mail = yield from do.one("mail.search", query=p["subject"])
        yield from do("mail.forward", id=mail["id"], to=boss["email"])

    def expected(self, end: Truth, p: Parts) -> None:
        mail = end.row(s.Mail, folder="inbox", subject=p["subject"])
        end.sent(end.boss.email, f"Fwd: {mail.subject}", mail.body)


class MeetBoss(Template):
    text = (
        "Put the meeting '{title}' with the boss as a guest into my calendar on {day} at {time} my time, as long as my "
        "meetings always take."
    )
    apps, slots = ("calendar", "directory"), ("boss", "minutes", "zone")

    def draw(self, draw: Draw) -> Parts:
        return {"title": f"{draw.of(*TOPICS)} talk", "day": draw.of(*DAYS), "time": draw.of(*TIMES)}

    def solve(self, do, p):
        boss = yield from do.boss()
        minutes = yield from do.fact("minutes")
        starts = yield from do.starts(p["day"], p["time"])
        guests = [boss["email"]]
        yield from do("calendar.create", title=p["title"], starts=starts, minutes=int(minutes), guests=guests)

    def expected(self, end: Truth, p: Parts) -> None:
        row = s.Event(
            title=p["title"],
            starts=end.starts(p["day"], p["time"]),
            minutes=int(end.facts.minutes),
            guests=(end.boss.email,),
        )
        end.add(row)


class ShareWithBoss(Template):
    text = "Share the file {name} with the boss."
    apps, slots = ("files", "directory"), ("boss",)

    def draw(self, draw: Draw) -> Parts:
        return {"name": draw.one(s.TextFile).name}

    def solve(self, do, p):
        boss = yield from do.boss()
        file = yield from do.one("files.search", query=p["name"])
        yield from do("files.share", id=file["id"], email=boss["email"])

    def expected(self, end: Truth, p: Parts) -> None:
        end.edit(end.row(s.TextFile, name=p["name"]), shared_with=(end.boss.email,))


class TextContact(Template):
    text = "Send my {label} the message '{text}', signed as I always do."
    apps, slots = ("contacts", "messages"), ("sign",)

    def draw(self, draw: Draw) -> Parts:
        return {"label": draw.of(*LABELS), "text": draw.of(*TEXTS)}

    def solve(self, do, p):
        closing = yield from do.fact("sign")
        contact = yield from do.one("contacts.search", label=p["label"])
        yield from do("messages.send", phone=contact["phone"], text=signed(p["text"], closing, do.first))

    def expected(self, end: Truth, p: Parts) -> None:
        phone = end.row(s.Contact, label=p["label"]).phone
        end.add(s.TextMessage(phone=phone, incoming=False, text=end.signed(p["text"]), at=NOW))


class PayContact(Template):
    text = "Send my {label} {amount} euros for '{note}', paid as always."
    apps, slots = ("contacts", "payments"), ("card",)

    def draw(self, draw: Draw) -> Parts:
        return {"label": draw.of(*LABELS), "amount": str(draw.rng.randint(5, 99)), "note": draw.of(*ERRANDS).lower()}

    def solve(self, do, p):
        card = yield from do.fact("card")
        contact = yield from do.one("contacts.search", label=p["label"])
        yield from do("payments.send", to=contact["email"], amount=int(p["amount"]), card=card, note=p["note"])

    def expected(self, end: Truth, p: Parts) -> None:
        end.transferred(end.row(s.Contact, label=p["label"]).email, int(p["amount"]), p["note"])


class AskContact(Template):
    text = "Ask my {label} for {amount} euros for '{note}'."
    apps = ("contacts", "payments")

    def draw(self, draw: Draw) -> Parts:
        return {"label": draw.of(*LABELS), "amount": str(draw.rng.randint(5, 99)), "note": draw.of(*ERRANDS).lower()}

    def solve(self, do, p):
        contact = yield from do.one("contacts.search", label=p["label"])
        yield from do("payments.ask", email=contact["email"], amount=int(p["amount"]), note=p["note"])

    def expected(self, end: Truth, p: Parts) -> None:
        to = end.row(s.Contact, label=p["label"]).email
        end.add(s.PaymentRequest(sender=end.person.email, to=to, amount=int(p["amount"]), note=p["note"]))


class NoteToTodo(Template):
    text = "Make a thing to do of the note '{title}', with its title, due on {day}, and delete the note."
    apps = ("notes", "todo")
    many_calls = True

    def draw(self, draw: Draw) -> Parts:
        return {"title": draw.one(s.ShortNote).title, "day": draw.of(*DAYS)}

    def solve(self, do, p):
        note = yield from do.one("notes.search", query=p["title"])
        yield from do.batch(
            [("todo.create", {"title": note["title"], "due": p["day"]}), ("notes.delete", {"id": note["id"]})]
        )

    def expected(self, end: Truth, p: Parts) -> None:
        end.add(s.Todo(title=p["title"], due=p["day"]))
        end.remove(end.row(s.ShortNote, title=p["title"]))


class MailToFile(Template):
    text = "Save the text of the mail '{subject}' in my inbox as the file {name} in the folder {folder}."
    apps = ("mail", "files")

    def draw(self, draw: Draw) -> Parts:
        mail = draw.one(s.Mail, folder="inbox")
        return {"subject": mail.subject, "name": f"mail-{mail.subject.lower()}.txt", "folder": draw.of(*FOLDERS)}

    def solve(self, do, p):
        mail = yield from do.one("mail.search", query=p["subject"])
        yield from do("files.create", folder=p["folder"], name=p["name"], text=mail["body"])

    def expected(self, end: Truth, p: Parts) -> None:
        body = end.row(s.Mail, folder="inbox", subject=p["subject"]).body
        end.add(s.TextFile(folder=p["folder"], name=p["name"], text=body))


class InviteContact(Template):
    text = "Invite my {label} to the event '{title}'."
    apps = ("contacts", "calendar")
    many_calls = True

    def draw(self, draw: Draw) -> Parts:
        return {"label": draw.of(*LABELS), "title": draw.one(s.Event).title}

    def solve(self, do, p):
        contact = yield from do.one("contacts.search", label=p["label"])
        event = yield from do.one("calendar.search", query=p["title"])
        yield from do("calendar.invite", id=event["id"], email=contact["email"])

    def expected(self, end: Truth, p: Parts) -> None:
        end.edit(end.row(s.Event, title=p["title"]), guests=(end.row(s.Contact, label=p["label"]).email,))


class PlanTrip(Template):
    text = (
        "Book the cheapest {kind} to {city} on {day} for 1, paid as always, and put '{title}' into my calendar on {day} at "
        "{time} my time, as long as my meetings always take."
    )
    apps, slots = ("travel", "calendar"), ("card", "minutes", "zone")
    many_calls = True

    def draw(self, draw: Draw) -> Parts:
        offer = draw.one(s.Offer)
        return {
            "kind": offer.kind,
            "city": offer.destination,
            "day": offer.departs[:10],
            "title": f"Trip to {offer.destination}",
            "time": draw.of(*TIMES),
        }

    def solve(self, do, p):
        card = yield from do.fact("card")
        minutes = yield from do.fact("minutes")
        starts = yield from do.starts(p["day"], p["time"])
        offer = yield from do.one("travel.offers", kind=p["kind"], destination=p["city"], day=p["day"])
        event = {"title": p["title"], "starts": starts, "minutes": int(minutes)}
        yield from do.batch([("travel.book", {"offer_id": offer["id"], "card": card}), ("calendar.create", event)])

    def expected(self, end: Truth, p: Parts) -> None:
        offers = end.rows(s.Offer, kind=p["kind"], destination=p["city"])
        end.booked(min((o for o in offers if o.departs.startswith(p["day"])), key=lambda o: (o.price, o.id)), 1)
        starts, minutes = end.starts(p["day"], p["time"]), int(end.facts.minutes)
        end.add(s.Event(title=p["title"], starts=starts, minutes=minutes))


class SendGift(Template):
    text = (
        "Order {count} x '{product}', paid and delivered as always, and send my {label} the message '{text}', signed as I "
        "always do."
    )
    apps, slots = ("contacts", "shop", "messages"), ("card", "address", "sign")

    def draw(self, draw: Draw) -> Parts:
        product, label = draw.one(s.Product).name, draw.of(*LABELS)
        return {"count": draw.of("1", "2"), "product": product, "label": label, "text": draw.of(*TEXTS)}

    def solve(self, do, p):
        card = yield from do.fact("card")
        address = yield from do.fact("address")
        closing = yield from do.fact("sign")
        contact = yield from do.one("contacts.search", label=p["label"])
        product = yield from do.one("shop.products", query=p["product"])
        message = {"phone": contact["phone"], "text": signed(p["text"], closing, do.first)}
        line = {"product_id": product["id"], "quantity": int(p["count"])}
        paid = ("shop.checkout", {"card": card, "address": address})
        yield from do.batch([("shop.add_to_cart", line), paid, ("messages.send", message)])

    def expected(self, end: Truth, p: Parts) -> None:
        end.ordered(p["product"], int(p["count"]))
        phone = end.row(s.Contact, label=p["label"]).phone
        end.add(s.TextMessage(phone=phone, incoming=False, text=end.signed(p["text"]), at=NOW))


class PrepareMeeting(Template):
    text = "Invite the boss to the event '{title}' and share the file {name} with the boss."
    apps, slots = ("calendar", "files", "directory"), ("boss",)

    def draw(self, draw: Draw) -> Parts:
        return {"title": draw.one(s.Event).title, "name": draw.one(s.TextFile).name}

    def solve(self, do, p):
        boss = yield from do.boss()
        event = yield from do.one("calendar.search", query=p["title"])
        file = yield from do.one("files.search", query=p["name"])
        invited = ("calendar.invite", {"id": event["id"], "email": boss["email"]})
        yield from do.batch([invited, ("files.share", {"id": file["id"], "email": boss["email"]})])

    def expected(self, end: Truth, p: Parts) -> None:
        end.edit(end.row(s.Event, title=p["title"]), guests=(end.boss.email,))
        end.edit(end.row(s.TextFile, name=p["name"]), shared_with=(end.boss.email,))


class SplitBill(Template):
    text = (
        "Ask my {label} for {amount} euros for '{note}', and remind me by {day} in the project house to 'check {note}', and "
        "write a note '{title}' with the text '{label} owes {amount}'."
    )
    apps = ("contacts", "payments", "todo", "notes")

    def draw(self, draw: Draw) -> Parts:
        return {
            "label": draw.of(*LABELS),
            "amount": str(draw.rng.randint(5, 99)),
            "note": draw.of(*ERRANDS).lower(),
            "day": draw.of(*DAYS),
            "title": f"{draw.of(*TOPICS)} bill",
        }

    def solve(self, do, p):
        contact = yield from do.one("contacts.search", label=p["label"])
        asked = {"email": contact["email"], "amount": int(p["amount"]), "note": p["note"]}
        thing = {"title": f"check {p['note']}", "due": p["day"], "project": "house"}
        note = {"title": p["title"], "text": f"{p['label']} owes {p['amount']}"}
        yield from do.batch([("payments.ask", asked), ("todo.create", thing), ("notes.create", note)])

    def expected(self, end: Truth, p: Parts) -> None:
        to = end.row(s.Contact, label=p["label"]).email
        end.add(s.PaymentRequest(sender=end.person.email, to=to, amount=int(p["amount"]), note=p["note"]))
        end.add(s.Todo(title=f"check {p['note']}", due=p["day"], project="house"))
        end.add(s.ShortNote(title=p["title"], text=f"{p['label']} owes {p['amount']}"))


SEVERAL_APPS = by_name(
    (
        MailBoss, ForwardToBoss, MeetBoss, ShareWithBoss, TextContact, PayContact, AskContact, NoteToTodo, MailToFile,
        InviteContact, PlanTrip, SendGift, PrepareMeeting, SplitBill,
    )
)  # fmt: skip
