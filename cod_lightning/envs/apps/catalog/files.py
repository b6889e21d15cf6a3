"""Text files in folders."""

from collections.abc import Iterable

from msgspec.structs import replace

from cod_lightning.envs.apps.api import ApiError, App, AppDesk, find
from cod_lightning.envs.apps.schema import TextFile

files = App("files", "Text files; each is in one folder.")
files.shows("show", TextFile)
files.creates("create", TextFile, "folder name text")
files.updates("write", TextFile, "text")
files.updates("rename", TextFile, "name")
files.updates("move", TextFile, "folder")
files.deletes("delete", TextFile)


@files.lists
def list_(desk: AppDesk, folder: str = "") -> Iterable[TextFile]:
    """Files, of one folder if it is given."""
    return (f for f in desk.db.all(TextFile) if folder in ("", f.folder))


@files.lists
def search(desk: AppDesk, query: str) -> Iterable[TextFile]:
    """Files whose name or text contains the query."""
    return (f for f in desk.db.all(TextFile) if query.lower() in f"{f.name}\n{f.text}".lower())


files.values("folders", TextFile, "folder", "Names of all folders.")


@files.writes
def copy(desk: AppDesk, id: int, folder: str) -> TextFile:
    """Makes a copy in a folder, which is shared with nobody."""
    return desk.db.add(replace(find(desk, TextFile, id), folder=folder, shared_with=()))


@files.writes
def share(desk: AppDesk, id: int, email: str) -> TextFile:
    """Lets an address read a file."""
    file = find(desk, TextFile, id)
    if email in file.shared_with:
        raise ApiError(409, "the file is shared with that address already")
    return desk.db.put(replace(file, shared_with=(*file.shared_with, email)))


@files.writes
def unshare(desk: AppDesk, id: int, email: str) -> TextFile:
    """Takes that back."""
    file = find(desk, TextFile, id)
    if email not in file.shared_with:
        raise ApiError(404, "the file is not shared with that address")
    return desk.db.put(replace(file, shared_with=tuple(one for one in file.shared_with if one != email)))
