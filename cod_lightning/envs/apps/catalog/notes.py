"""Short texts."""

from collections.abc import Iterable

from msgspec.structs import replace

from cod_lightning.envs.apps.api import App, AppDesk, find
from cod_lightning.envs.apps.schema import ShortNote

notes = App("notes", "Short texts with one tag each.")
notes.shows("show", ShortNote)
notes.creates("create", ShortNote, "title text tag")
notes.updates("update", ShortNote, "title text tag")
notes.deletes("delete", ShortNote)
notes.sets("pin", ShortNote, "Keeps a note on top.", pinned=True)
notes.sets("unpin", ShortNote, "Takes that back.", pinned=False)


@notes.lists
def search(desk: AppDesk, query: str = "", tag: str = "") -> Iterable[ShortNote]:
    """Notes with this tag whose title or text contains the query; pinned ones first."""
    found = (
        n for n in desk.db.all(ShortNote) if query.lower() in f"{n.title}\n{n.text}".lower() and tag in ("", n.tag)
    )
    return sorted(found, key=lambda n: not n.pinned)


notes.values("tags", ShortNote, "tag", "All tags in use.")


@notes.writes
def append(desk: AppDesk, id: int, line: str) -> ShortNote:
    """Adds a line to a note."""
    note = find(desk, ShortNote, id)
    return desk.db.put(replace(note, text=f"{note.text}\n{line}"))
