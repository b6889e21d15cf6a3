"""Short messages between telephones."""

from collections.abc import Iterable

from cod_lightning.envs.apps.api import App, AppDesk
from cod_lightning.envs.apps.schema import TextMessage

messages = App("messages", "Short messages between telephones.")
messages.shows("show", TextMessage)
messages.deletes("delete", TextMessage)
messages.sets("mark_read", TextMessage, "Marks a message as read.", unread=False)


@messages.lists
def list_(desk: AppDesk, phone: str = "", unread: bool | None = None) -> Iterable[TextMessage]:
    """Messages from and to a telephone, newest first."""
    found = (m for m in desk.db.all(TextMessage) if phone in ("", m.phone) and unread in (None, m.unread))
    return sorted(found, key=lambda m: (m.at, m.id), reverse=True)


@messages.lists
def search(desk: AppDesk, query: str) -> Iterable[TextMessage]:
    """Messages that contain the query."""
    return (m for m in desk.db.all(TextMessage) if query.lower() in m.text.lower())


messages.values("telephones", TextMessage, "phone", "Numbers that messages were exchanged with.")


@messages.writes
def send(desk: AppDesk, phone: str, text: str) -> TextMessage:
    """Sends a message to a telephone."""
    return desk.db.add(TextMessage(phone=phone, incoming=False, text=text, at=desk.now))


@messages.writes
def clear(desk: AppDesk, phone: str) -> dict[str, int]:
    """Deletes all messages from and to a telephone."""
    found = [m for m in desk.db.all(TextMessage) if m.phone == phone]
    for message in found:
        desk.db.remove(message)
    return {"deleted": len(found)}
