"""What an episode had to do with the entries of the context, read off the states before and after it."""

from typing import Any

from cod_lightning.contexts.base import ContextEntry, ContextMechanism, Entries, beside
from cod_lightning.errors import ContextFailure
from cod_lightning.rollout.boundaries import blame, checked_text
from cod_lightning.types import EntryEvent, EntryEventKind, Episode, EpisodeKind


def _entries(mechanism: ContextMechanism, state: Any) -> tuple[ContextEntry, ...]:
    """The entries of a state. Raises `ContextFailure`."""
    try:
        entries = tuple(beside(mechanism, Entries).entries(state))
        for text in (text for one in entries for text in (one.key, one.text, one.gone)):
            checked_text(text, mechanism, ContextFailure)
    except BaseException as error:
        blame(ContextFailure, error, mechanism)
    return entries


def entry_events(mechanism: ContextMechanism, episode: Episode, *, known: bool, shown: bool) -> tuple[EntryEvent, ...]:
    """The events of an episode that took place. Raises `ContextFailure`.

    Args:
        mechanism: Whose states the episode has.
        episode: With its states.
        known: Whether the events of earlier episodes say what the state held before.
        shown: Whether a task was shown its context.
    """
    kept = _entries(mechanism, episode.state_before)
    before = {one.key: one for one in kept if not one.gone}
    events = [] if known else [EntryEvent(EntryEventKind.HELD, one.key, one.text) for one in before.values()]
    if episode.reward is None:
        return tuple(events)
    found = _entries(mechanism, episode.state_after)
    after = {one.key: one for one in found if not one.gone}
    gone = {one.key: one for one in found if one.gone and one.key not in after}
    if shown and episode.kind is EpisodeKind.SOLVE:
        seen = [one.key for one in (*after.values(), *gone.values()) if one.shown and one.key in before]
        events += [EntryEvent(EntryEventKind.SHOWN, key) for key in seen]
    for key, one in after.items():
        if key not in before:
            events.append(EntryEvent(EntryEventKind.CAME, key, one.text))
        elif before[key].text != one.text:
            events.append(EntryEvent(EntryEventKind.CHANGED, key, one.text))
    for key in (*before, *(key for key in gone if key not in before)):
        if key not in after:
            events.append(EntryEvent(EntryEventKind.GONE, key, gone[key].gone if key in gone else ""))
    return tuple(events)
