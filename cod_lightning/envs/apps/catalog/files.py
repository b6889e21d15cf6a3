"""Text files in folders."""

from collections.abc import Iterable

from msgspec.structs import replace

from cod_lightning.envs.apps.api import ApiError, App, Desk, find
from cod_lightning.envs.apps.schema import File

files = App("files", "Text files; each is in one folder.")
files.shows("show", File)
files.creates("create", File, "folder name text")
files.updates("write", File, "text")
files.updates("rename", File, "name")
files.updates("move", File, "folder")
files.deletes("delete", File)


@files.lists
def list_(desk: Desk, folder: str = "") -> Iterable[File]:
    """Files, of one folder if it is given."""
    return (f for f in desk.db.all(File) if folder in ("", f.folder))


@files.lists
def search(desk: Desk, query: str) -> Iterable[File]:
    """Files whose name or text contains the query."""
    return (f for f in desk.db.all(File) if query.lower() in f"{f.name}\n{f.text}".lower())


@files.reads
def folders(desk: Desk) -> list[str]:
    """Names of all folders."""
    return sorted({f.folder for f in desk.db.all(File)})


@files.writes
def copy(desk: Desk, id: int, folder: str) -> File:
    """Makes a copy in a folder, which is shared with nobody."""
    return desk.db.add(replace(find(desk, File, id), folder=folder, shared_with=()))


@files.writes
def share(desk: Desk, id: int, email: str) -> File:
    """Lets an address read a file."""
    file = find(desk, File, id)
    if email in file.shared_with:
        raise ApiError(409, "the file is shared with that address already")
    return desk.db.put(replace(file, shared_with=(*file.shared_with, email)))


@files.writes
def unshare(desk: Desk, id: int, email: str) -> File:
    """Takes that back."""
    file = find(desk, File, id)
    if email not in file.shared_with:
        raise ApiError(404, "the file is not shared with that address")
    return desk.db.put(replace(file, shared_with=tuple(one for one in file.shared_with if one != email)))
