"""Electronic mail."""

from collections.abc import Iterable
from typing import Any, Literal

from msgspec.structs import replace

from cod_lightning.envs.apps.api import ApiError, App, AppDesk, find
from cod_lightning.envs.apps.schema import Mail

Folder = Literal["inbox", "sent", "drafts", "archive"]
mail = App("mail", "Electronic mail, in four folders.")
mail.shows("show", Mail)
mail.deletes("delete", Mail)
mail.sets("archive", Mail, "Moves a mail to the archive.", folder="archive")
mail.sets("mark_read", Mail, "Marks a mail as read.", unread=False)
mail.sets("mark_unread", Mail, "Marks a mail as unread.", unread=True)
mail.sets("star", Mail, "Stars a mail.", starred=True)
mail.sets("unstar", Mail, "Takes the star from a mail.", starred=False)


@mail.lists
def list_(
    desk: AppDesk, folder: Folder = "inbox", unread: bool | None = None, starred: bool | None = None
) -> Iterable[Mail]:
    """Mails of a folder, newest first."""
    mails = (
        m
        for m in desk.db.all(Mail)
        if m.folder == folder and starred in (None, m.starred) and unread in (None, m.unread)
    )
    return sorted(mails, key=lambda m: (m.at, m.id), reverse=True)


@mail.lists
def search(desk: AppDesk, query: str) -> Iterable[Mail]:
    """Mails of all folders whose sender, receiver, subject or text contains the query."""
    wanted = query.lower()
    return (m for m in desk.db.all(Mail) if wanted in f"{m.sender}\n{m.to}\n{m.subject}\n{m.body}".lower())


@mail.reads
def count(desk: AppDesk, folder: Folder = "inbox") -> dict[str, int]:
    """How many mails a folder has, and how many of them are unread."""
    mails = [m for m in desk.db.all(Mail) if m.folder == folder]
    return {"mails": len(mails), "unread": sum(m.unread for m in mails)}


def _send(desk: AppDesk, to: str, subject: str, body: str) -> Mail:
    if "@" not in to:
        raise ApiError(422, "to is no mail address")
    return desk.db.add(Mail(folder="sent", sender=desk.email, to=to, subject=subject, body=body, at=desk.now))


@mail.writes
def send(desk: AppDesk, to: str, subject: str, body: str) -> Mail:
    """Sends a mail to an address."""
    return _send(desk, to, subject, body)


@mail.writes
def reply(desk: AppDesk, id: int, body: str) -> Mail:
    """Answers a mail; the subject begins with Re:."""
    old = find(desk, Mail, id)
    return _send(desk, old.sender, f"Re: {old.subject}", body)


@mail.writes
def forward(desk: AppDesk, id: int, to: str) -> Mail:
    """Sends a mail on to an address; the subject begins with Fwd:."""
    old = find(desk, Mail, id)
    return _send(desk, to, f"Fwd: {old.subject}", old.body)


@mail.writes
def draft(desk: AppDesk, to: str, subject: str, body: str) -> Mail:
    """Keeps a mail as a draft."""
    return desk.db.add(Mail(folder="drafts", sender=desk.email, to=to, subject=subject, body=body, at=desk.now))


@mail.writes
def send_draft(desk: AppDesk, id: int) -> Any:
    """Sends a draft."""
    old = find(desk, Mail, id)
    if old.folder != "drafts":
        raise ApiError(409, f"mail {id} is no draft")
    return desk.db.put(replace(old, folder="sent", at=desk.now))
