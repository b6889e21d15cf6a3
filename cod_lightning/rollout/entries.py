"""What an episode had to do with the entries of the context, read off the states before and after it."""

from collections.abc import Iterator
from typing import Any

from cod_lightning.contexts.base import ContextEntry, ContextMechanism
from cod_lightning.errors import ContextFailure
from cod_lightning.rollout.boundaries import checked_text
from cod_lightning.types import EntryEvent, EntryEventKind, Episode, EpisodeKind


def entry_events(mechanism: ContextMechanism, episode: Episode, *, known: bool, shown: bool) -> tuple[EntryEvent, ...]:
    """The events of an episode that took place.

    Args:
        mechanism: Whose states these are.
        episode: With its states.
        known: Whether the events of earlier episodes say what the state held before.
        shown: Whether a task was shown its context.
    """
    return tuple(_events(mechanism, episode, known, shown and episode.kind is EpisodeKind.SOLVE))


def _events(mechanism: ContextMechanism, episode: Episode, known: bool, shown: bool) -> Iterator[EntryEvent]:
    kept = _entries(mechanism, episode.state_before)
    before = {one.key: one for one in kept if not one.gone}
    if not known:
        yield from (EntryEvent(EntryEventKind.HELD, one.key, one.text) for one in before.values())
    if episode.reward is None:
        return
    found = kept if episode.state_after is episode.state_before else _entries(mechanism, episode.state_after)
    after = {one.key: one for one in found if not one.gone}
    gone = {one.key: one for one in found if one.gone and one.key not in after}
    if shown:
        seen = (one for one in (*after.values(), *gone.values()) if one.shown and one.key in before)
        yield from (EntryEvent(EntryEventKind.SHOWN, one.key) for one in seen)
    for key, one in after.items():
        if key not in before:
            yield EntryEvent(EntryEventKind.CAME, key, one.text)
        elif before[key].text != one.text:
            yield EntryEvent(EntryEventKind.CHANGED, key, one.text)
    for key in (*before, *(key for key in gone if key not in before)):
        if key not in after:
            yield EntryEvent(EntryEventKind.GONE, key, gone[key].gone if key in gone else "")


def _entries(mechanism: ContextMechanism, state: Any) -> tuple[ContextEntry, ...]:
    entries = tuple(mechanism.entries(state))
    for one in entries:
        for text in (one.key, one.text, one.gone):
            checked_text(text, mechanism, ContextFailure)
    return entries
