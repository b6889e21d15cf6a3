"""Short texts."""

from collections.abc import Iterable

from msgspec.structs import replace

from cod_lightning.envs.apps.api import App, Desk, find
from cod_lightning.envs.apps.schema import Note

notes = App("notes", "Short texts with one tag each.")
notes.shows("show", Note)
notes.creates("create", Note, "title text tag")
notes.updates("update", Note, "title text tag")
notes.deletes("delete", Note)
notes.sets("pin", Note, "Keeps a note on top.", pinned=True)
notes.sets("unpin", Note, "Takes that back.", pinned=False)


@notes.lists
def search(desk: Desk, query: str = "", tag: str = "") -> Iterable[Note]:
    """Notes with this tag whose title or text contains the query; pinned ones first."""
    found = (n for n in desk.db.all(Note) if query.lower() in f"{n.title}\n{n.text}".lower() and tag in ("", n.tag))
    return sorted(found, key=lambda n: not n.pinned)


@notes.reads
def tags(desk: Desk) -> list[str]:
    """All tags in use."""
    return sorted({n.tag for n in desk.db.all(Note)})


@notes.writes
def append(desk: Desk, id: int, line: str) -> Note:
    """Adds a line to a note."""
    note = find(desk, Note, id)
    return desk.db.put(replace(note, text=f"{note.text}\n{line}"))
