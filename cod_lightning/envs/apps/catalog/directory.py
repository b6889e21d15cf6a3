"""The company's public directory."""

from collections.abc import Iterable

from cod_lightning.envs.apps.api import App, AppDesk
from cod_lightning.envs.apps.schema import Employee, Room

directory = App("directory", "People and rooms of the company; needs no token.", private=False)
directory.shows("person", Employee)
directory.shows("room", Room)


@directory.lists
def people(desk: AppDesk, query: str = "", title: str = "", team: str = "") -> Iterable[Employee]:
    """People whose name contains the query, with this title, of this team."""
    rows = desk.db.all(Employee)
    return (e for e in rows if query.lower() in e.name.lower() and title in ("", e.title) and team in ("", e.team))


directory.values("teams", Employee, "team", "Names of all teams.")


@directory.lists
def rooms(desk: AppDesk, seats: int = 0) -> Iterable[Room]:
    """Rooms with at least so many seats."""
    return (r for r in desk.db.all(Room) if r.seats >= seats)
