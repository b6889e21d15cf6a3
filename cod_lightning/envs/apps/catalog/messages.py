"""Short messages between telephones."""

from collections.abc import Iterable

from cod_lightning.envs.apps.api import App, Desk
from cod_lightning.envs.apps.schema import Message

messages = App("messages", "Short messages between telephones.")
messages.shows("show", Message)
messages.deletes("delete", Message)
messages.sets("mark_read", Message, "Marks a message as read.", unread=False)


@messages.lists
def list_(desk: Desk, phone: str = "", unread: bool | None = None) -> Iterable[Message]:
    """Messages from and to a telephone, newest first."""
    found = (m for m in desk.db.all(Message) if phone in ("", m.phone) and unread in (None, m.unread))
    return sorted(found, key=lambda m: (m.at, m.id), reverse=True)


@messages.lists
def search(desk: Desk, query: str) -> Iterable[Message]:
    """Messages that contain the query."""
    return (m for m in desk.db.all(Message) if query.lower() in m.text.lower())


@messages.reads
def telephones(desk: Desk) -> list[str]:
    """Numbers that messages were exchanged with."""
    return sorted({m.phone for m in desk.db.all(Message)})


@messages.writes
def send(desk: Desk, phone: str, text: str) -> Message:
    """Sends a message to a telephone."""
    return desk.db.add(Message(phone=phone, incoming=False, text=text, at=desk.now))


@messages.writes
def clear(desk: Desk, phone: str) -> dict[str, int]:
    """Deletes all messages from and to a telephone."""
    found = [m for m in desk.db.all(Message) if m.phone == phone]
    for message in found:
        desk.db.remove(message)
    return {"deleted": len(found)}
