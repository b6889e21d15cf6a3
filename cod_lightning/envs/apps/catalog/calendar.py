"""Events and meetings, by the calendar's own clock."""

from collections.abc import Iterable

from msgspec.structs import replace

from cod_lightning.envs.apps.api import ApiError, App, AppDesk, find
from cod_lightning.envs.apps.person import on_clock
from cod_lightning.envs.apps.schema import Event

calendar = App("calendar", "Events; starts is a time such as 2026-03-05 14:00 by the calendar's clock.")
calendar.shows("show", Event)
calendar.creates("create", Event, "title starts minutes place guests")
calendar.updates("update", Event, "title starts minutes place")
calendar.deletes("delete", Event)


@calendar.lists
def list_(desk: AppDesk, day: str = "") -> Iterable[Event]:
    """Events in the order in which they start; of one day, if it is given."""
    return sorted((e for e in desk.db.all(Event) if e.starts.startswith(day)), key=lambda e: (e.starts, e.id))


@calendar.lists
def search(desk: AppDesk, query: str) -> Iterable[Event]:
    """Events whose title contains the query."""
    return (e for e in desk.db.all(Event) if query.lower() in e.title.lower())


@calendar.reads
def clock(desk: AppDesk) -> dict[str, str]:
    """The time now by the calendar's clock."""
    return {"now": on_clock(desk.now, desk.facts.zone)}


@calendar.writes
def invite(desk: AppDesk, id: int, email: str) -> Event:
    """Adds a guest to an event."""
    event = find(desk, Event, id)
    if email in event.guests:
        raise ApiError(409, "that guest is invited already")
    return desk.db.put(replace(event, guests=(*event.guests, email)))


@calendar.writes
def uninvite(desk: AppDesk, id: int, email: str) -> Event:
    """Takes a guest from an event."""
    event = find(desk, Event, id)
    if email not in event.guests:
        raise ApiError(404, "the event has no such guest")
    return desk.db.put(replace(event, guests=tuple(guest for guest in event.guests if guest != email)))
