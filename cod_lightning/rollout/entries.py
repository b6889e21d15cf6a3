"""What an episode had to do with the entries of the context, read off the states before and after it."""

from typing import Any

from cod_lightning.contexts.base import ContextEntry, ContextMechanism, Entries, beside
from cod_lightning.errors import ContextFailure
from cod_lightning.rollout.boundaries import blame, checked_text
from cod_lightning.types import EntryEvent, EntryEventKind, Episode, EpisodeKind


class EntriesOf:
    """The entries of states; an episode begins with the state that the one before left, so those of the latest are kept."""

    def __init__(self, mechanism: ContextMechanism) -> None:
        self.mechanism = mechanism
        self._state: Any = None
        self._entries: tuple[ContextEntry, ...] | None = None

    def __call__(self, state: Any) -> tuple[ContextEntry, ...]:
        """Raises `ContextFailure`."""
        if self._entries is None or state is not self._state:
            try:
                entries = tuple(beside(self.mechanism, Entries).entries(state))
                for one in entries:
                    checked_text(one.key, self.mechanism, ContextFailure)
                    checked_text(one.text, self.mechanism, ContextFailure)
                    checked_text(one.gone, self.mechanism, ContextFailure)
            except BaseException as error:
                blame(ContextFailure, error, self.mechanism)
            self._state, self._entries = state, entries
        return self._entries


def entry_events(entries_of: EntriesOf, episode: Episode, *, known: bool, shown: bool) -> tuple[EntryEvent, ...]:
    """The events of an episode that took place. Raises `ContextFailure`.

    Args:
        entries_of: By the mechanism whose states these are.
        episode: With its states.
        known: Whether the events of earlier episodes say what the state held before.
        shown: Whether a task was shown its context.
    """
    kept, solved = entries_of(episode.state_before), episode.kind is EpisodeKind.SOLVE
    if known and episode.state_after is episode.state_before and not any(one.gone for one in kept):
        seen = kept if shown and solved and episode.reward is not None else ()
        return tuple(EntryEvent(EntryEventKind.SHOWN, one.key) for one in seen if one.shown)
    before = {one.key: one for one in kept if not one.gone}
    events = [] if known else [EntryEvent(EntryEventKind.HELD, one.key, one.text) for one in before.values()]
    if episode.reward is None:
        return tuple(events)
    found = entries_of(episode.state_after)
    after = {one.key: one for one in found if not one.gone}
    gone = {one.key: one for one in found if one.gone and one.key not in after}
    if shown and solved:
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
