"""Tasks in one app: mail, calendar, contacts, files, notes, things to do, messages."""

from cod_lightning.envs.apps import schema as s
from cod_lightning.envs.apps.person import CITIES, DAYS, FOLDERS, LABELS, PROJECTS, TOPICS
from cod_lightning.envs.apps.templates.base import TEXTS, TIMES, Draw, Parts, Template, Truth, by_name, signed


class SendMail(Template):
    text = "Send a mail to {email} with the subject '{subject}' and the text '{text}', signed as I always do."
    apps, slots = ("mail",), ("sign",)

    def draw(self, draw: Draw) -> Parts:
        return {"email": draw.one(s.Employee).email, "subject": draw.of(*TOPICS), "text": draw.of(*TEXTS)}

    def solve(self, do, p):
        closing = yield from do.fact("sign")
        yield from do("mail.send", to=p["email"], subject=p["subject"], body=signed(p["text"], closing, do.first))

    def expected(self, end: Truth, p: Parts) -> None:
        end.sent(p["email"], p["subject"], end.signed(p["text"]))


class SendMailLater(SendMail):
    """The receiver has to be asked for."""

    text = "Send a mail with the subject '{subject}' and the text '{text}', signed as I always do."
    withheld = ("email",)


class ReplyMail(Template):
    text = "Reply to the mail '{subject}' in my inbox with '{text}', signed as I always do."
    apps, slots = ("mail",), ("sign",)

    def draw(self, draw: Draw) -> Parts:
        return {"subject": draw.one(s.Mail, folder="inbox").subject, "text": draw.of(*TEXTS)}

    def solve(self, do, p):
        closing = yield from do.fact("sign")
        mail = yield from do.one("mail.search", query=p["subject"])
        yield from do("mail.reply", id=mail["id"], body=signed(p["text"], closing, do.first))

    def expected(self, end: Truth, p: Parts) -> None:
        mail = end.row(s.Mail, folder="inbox", subject=p["subject"])
        end.sent(mail.sender, f"Re: {mail.subject}", end.signed(p["text"]))


class ArchiveFrom(Template):
    text = "Archive all mails from {email} that are in my inbox."
    apps = ("mail",)
    many_calls = True

    def draw(self, draw: Draw) -> Parts:
        return {"email": draw.one(s.Mail, folder="inbox").sender}

    def solve(self, do, p):
        mails = yield from do.all("mail.search", query=p["email"])
        wanted = [m["id"] for m in mails if m["folder"] == "inbox" and m["sender"] == p["email"]]
        yield from do.batch([("mail.archive", {"id": id}) for id in wanted])

    def expected(self, end: Truth, p: Parts) -> None:
        for mail in end.rows(s.Mail, folder="inbox", sender=p["email"]):
            end.edit(mail, folder="archive")


class StarMail(Template):
    text = "Star the mail '{subject}' in my inbox, and mark it as unread."
    apps = ("mail",)

    def draw(self, draw: Draw) -> Parts:
        return {"subject": draw.one(s.Mail, folder="inbox", unread=False).subject}

    def solve(self, do, p):
        mail = yield from do.one("mail.search", query=p["subject"])
        yield from do.batch([("mail.star", {"id": mail["id"]}), ("mail.mark_unread", {"id": mail["id"]})])

    def expected(self, end: Truth, p: Parts) -> None:
        end.edit(end.row(s.Mail, folder="inbox", subject=p["subject"]), starred=True, unread=True)


class CountMails(Template):
    text = "How many mails from {email} are in my inbox? Answer with the number."
    apps = ("mail",)

    def draw(self, draw: Draw) -> Parts:
        return {"email": draw.one(s.Mail, folder="inbox").sender}

    def solve(self, do, p):
        mails = yield from do.all("mail.search", query=p["email"])
        return sum(m["folder"] == "inbox" and m["sender"] == p["email"] for m in mails)

    def expected(self, end: Truth, p: Parts) -> None:
        end.answer = str(len(end.rows(s.Mail, folder="inbox", sender=p["email"])))


class NewEvent(Template):
    text = "Put the meeting '{title}' into my calendar on {day} at {time} my time, as long as my meetings always take."
    apps, slots = ("calendar",), ("minutes", "zone")

    def draw(self, draw: Draw) -> Parts:
        return {"title": f"{draw.of(*TOPICS)} talk", "day": draw.of(*DAYS), "time": draw.of(*TIMES)}

    def solve(self, do, p):
        minutes = yield from do.fact("minutes")
        starts = yield from do.starts(p["day"], p["time"])
        yield from do("calendar.create", title=p["title"], starts=starts, minutes=int(minutes))

    def expected(self, end: Truth, p: Parts) -> None:
        starts, minutes = end.starts(p["day"], p["time"]), int(end.facts.minutes)
        end.add(s.Event(title=p["title"], starts=starts, minutes=minutes))


class MoveEvent(Template):
    text = "Move the event '{title}' to {time} my time on {day}."
    apps, slots = ("calendar",), ("zone",)

    def draw(self, draw: Draw) -> Parts:
        return {"title": draw.one(s.Event).title, "day": draw.of(*DAYS), "time": draw.of(*TIMES)}

    def solve(self, do, p):
        event = yield from do.one("calendar.search", query=p["title"])
        starts = yield from do.starts(p["day"], p["time"])
        yield from do("calendar.update", id=event["id"], starts=starts)

    def expected(self, end: Truth, p: Parts) -> None:
        end.edit(end.row(s.Event, title=p["title"]), starts=end.starts(p["day"], p["time"]))


class ClearDay(Template):
    text = "Delete everything that my calendar has on {day}."
    apps = ("calendar",)

    def draw(self, draw: Draw) -> Parts:
        return {"day": draw.one(s.Event).starts[:10]}

    def solve(self, do, p):
        events = yield from do.all("calendar.list", day=p["day"])
        yield from do.batch([("calendar.delete", {"id": event["id"]}) for event in events])

    def expected(self, end: Truth, p: Parts) -> None:
        for event in end.rows(s.Event):
            if event.starts.startswith(p["day"]):
                end.remove(event)


class ContactMoves(Template):
    text = "My {label} has moved to {city}: change that in my contacts."
    apps = ("contacts",)

    def draw(self, draw: Draw) -> Parts:
        contact = draw.one(s.Contact, label=draw.of(*LABELS))
        return {"label": contact.label, "city": draw.of(*(city for city in CITIES if city != contact.city))}

    def solve(self, do, p):
        contact = yield from do.one("contacts.search", label=p["label"])
        yield from do("contacts.update", id=contact["id"], city=p["city"])

    def expected(self, end: Truth, p: Parts) -> None:
        end.edit(end.row(s.Contact, label=p["label"]), city=p["city"])


class CopyFile(Template):
    text = "Copy the file {name} into the folder {folder}, and delete the old one."
    apps = ("files",)

    def draw(self, draw: Draw) -> Parts:
        file = draw.one(s.TextFile)
        return {"name": file.name, "folder": draw.of(*(name for name in FOLDERS if name != file.folder))}

    def solve(self, do, p):
        file = yield from do.one("files.search", query=p["name"])
        yield from do("files.copy", id=file["id"], folder=p["folder"])
        yield from do("files.delete", id=file["id"])

    def expected(self, end: Truth, p: Parts) -> None:
        file = end.row(s.TextFile, name=p["name"])
        end.remove(file)
        end.add(s.TextFile(folder=p["folder"], name=file.name, text=file.text))


class ShareFolder(Template):
    text = "Share every file in the folder {folder} with {email}."
    apps = ("files",)
    many_calls = True

    def draw(self, draw: Draw) -> Parts:
        return {"folder": draw.one(s.TextFile).folder, "email": draw.one(s.Employee).email}

    def solve(self, do, p):
        found = yield from do.all("files.list", folder=p["folder"])
        yield from do.batch([("files.share", {"id": file["id"], "email": p["email"]}) for file in found])

    def expected(self, end: Truth, p: Parts) -> None:
        for file in end.rows(s.TextFile, folder=p["folder"]):
            end.edit(file, shared_with=(p["email"],))


class PinNote(Template):
    text = "Pin the note '{title}' and add the line '{text}' to it."
    apps = ("notes",)

    def draw(self, draw: Draw) -> Parts:
        return {"title": draw.one(s.ShortNote).title, "text": draw.of(*TEXTS)}

    def solve(self, do, p):
        note = yield from do.one("notes.search", query=p["title"])
        yield from do.batch(
            [("notes.pin", {"id": note["id"]}), ("notes.append", {"id": note["id"], "line": p["text"]})]
        )

    def expected(self, end: Truth, p: Parts) -> None:
        note = end.row(s.ShortNote, title=p["title"])
        end.edit(note, pinned=True, text=f"{note.text}\n{p['text']}")


class FinishProject(Template):
    text = "Mark everything in the project {project} as done."
    apps = ("todo",)
    many_calls = True

    def draw(self, draw: Draw) -> Parts:
        return {"project": draw.one(s.Todo, done=False).project}

    def solve(self, do, p):
        found = yield from do.all("todo.list", project=p["project"], done=False)
        yield from do.batch([("todo.complete", {"id": one["id"]}) for one in found])

    def expected(self, end: Truth, p: Parts) -> None:
        for one in end.rows(s.Todo, project=p["project"], done=False):
            end.edit(one, done=True)


class NewTodo(Template):
    text = "Remind me to '{title}' by {day}, in the project {project}."
    apps = ("todo",)

    def draw(self, draw: Draw) -> Parts:
        return {"title": f"check the {draw.of(*TOPICS).lower()}", "day": draw.of(*DAYS), "project": draw.of(*PROJECTS)}

    def solve(self, do, p):
        yield from do("todo.create", title=p["title"], due=p["day"], project=p["project"])

    def expected(self, end: Truth, p: Parts) -> None:
        end.add(s.Todo(title=p["title"], due=p["day"], project=p["project"]))


class DeleteMessage(Template):
    text = "Delete the message that says '{text}'."
    apps = ("messages",)

    def draw(self, draw: Draw) -> Parts:
        return {"text": draw.one(s.TextMessage).text}

    def solve(self, do, p):
        message = yield from do.one("messages.search", query=p["text"])
        yield from do("messages.delete", id=message["id"])

    def expected(self, end: Truth, p: Parts) -> None:
        end.remove(end.row(s.TextMessage, text=p["text"]))


OFFICE = by_name(
    (
        SendMail, SendMailLater, ReplyMail, ArchiveFrom, StarMail, CountMails, NewEvent, MoveEvent, ClearDay,
        ContactMoves, CopyFile, ShareFolder, PinNote, FinishProject, NewTodo, DeleteMessage,
    )
)  # fmt: skip
