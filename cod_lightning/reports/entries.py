"""Contexts entry by entry: the difference of two, and what became of each entry in a lifecycle.

The difference (the report draws it) knows texts alone: an entry is a line. A history follows what the
mechanism knows an entry by.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from cod_lightning.beginnings import num_alike
from cod_lightning.types import EntryEventKind, Episode

_MOST_COMPARED = 1_000
"""Entries of both contexts that are compared one by one; what that takes grows with their square."""


def entry_changes(before: str, after: str) -> Iterator[tuple[str, str]]:
    """All entries of both texts in order, each kept, removed or added; of a changed one both versions. Blank lines are no entries.

    >>> list(entry_changes("1. red is up\\n2. blue is down", "1. red is left\\n2. blue is down"))
    [('removed', '1. red is up'), ('added', '1. red is left'), ('kept', '2. blue is down')]
    """
    old, new = ([line for line in text.splitlines() if line.strip()] for text in (before, after))
    if len(old) + len(new) > _MOST_COMPARED:
        yield from _apart(old, new)
        return
    for tag, i, j, k, m in SequenceMatcher(None, old, new).get_opcodes():
        if tag == "equal":
            yield from (("kept", entry) for entry in new[k:m])
        else:
            yield from (("removed", entry) for entry in old[i:j])
            yield from (("added", entry) for entry in new[k:m])


def _apart(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What both begin and end with is kept; all between is removed and added."""
    first = num_alike(old, new)
    last = num_alike(old[first:][::-1], new[first:][::-1])
    yield from (("kept", entry) for entry in new[:first])
    yield from (("removed", entry) for entry in old[first : len(old) - last])
    yield from (("added", entry) for entry in new[first : len(new) - last])
    yield from (("kept", entry) for entry in new[len(new) - last :])


@dataclass(slots=True)
class EntryHistory:
    """What became of one entry in a lifecycle; episodes are indices of it."""

    key: str
    text: str
    """What it says in the end."""
    came: int
    """Episode that it came with; -1 where it was there before the first."""
    changes: list[tuple[int, str]]
    """Episodes that changed it, each with what it said before."""
    shown: list[int]
    """Tasks that were shown it, or chose it."""
    gone: int | None = None
    """Episode that removed it; None where it is there in the end."""
    why: str = ""
    """Why, where the mechanism removed it by itself."""

    def earned(self, episodes: Sequence[Episode]) -> tuple[float | None, int]:
        """Mean reward of the tasks that were shown it, and of how many; None for none."""
        rewards = [reward for index in self.shown if (reward := episodes[index].reward) is not None]
        return (sum(rewards) / len(rewards) if rewards else None), len(rewards)


def entry_histories(episodes: Sequence[Episode]) -> list[EntryHistory]:
    """The histories of all entries of a lifecycle, in the order in which they came."""
    live, found = dict[str, EntryHistory](), list[EntryHistory]()
    for index, of_episode in enumerate(episode.entries or () for episode in episodes):
        held = {event.key: event.text for event in of_episode if event.kind is EntryEventKind.HELD}
        if held:  # what a context from elsewhere has not, went with the one before it
            for key in [key for key, one in live.items() if held.get(key) != one.text]:
                live.pop(key).gone = index
        for event in of_episode:
            known, is_new = live.get(event.key), event.kind in (EntryEventKind.HELD, EntryEventKind.CAME)
            if known is None and (is_new or event.kind is EntryEventKind.GONE):
                came = -1 if event.kind is EntryEventKind.HELD and not index else index
                known = live[event.key] = EntryHistory(event.key, event.text if is_new else "", came, [], [])
                found.append(known)
            if known is None:
                continue  # the event that it came with is missing
            if event.kind is EntryEventKind.CHANGED:
                known.changes.append((index, known.text))
                known.text = event.text
            elif event.kind is EntryEventKind.SHOWN:
                known.shown.append(index)
            elif event.kind is EntryEventKind.GONE:
                live.pop(event.key)
                known.gone, known.why = index, event.text
    return found
