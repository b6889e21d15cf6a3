"""Contexts entry by entry: the difference of two, and what became of each entry in a lifecycle.

The difference (the report draws it) knows texts alone: an entry is a line. A history follows what the
mechanism knows an entry by.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from cod_lightning.beginnings import num_alike
from cod_lightning.types import EntryEventKind, Episode

_SAME_FIRST_WORD = 0.5
"""Similarity of two entries that begin alike, such as with the same number or key, beside the share of words in common."""
_LEAST_SIMILARITY = 0.5
"""Below it an entry is removed and another one added."""
_MOST_PAIRS = 40_000
"""Pairs of entries (of two entries, of words) that are compared between the first and the last that differ; of more, all there are
removed and added, since comparing may take their number to the power of 1.5."""


class ChangeKind(StrEnum):
    """What became of an entry."""

    KEPT = "kept"
    REMOVED = "removed"
    ADDED = "added"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One entry of either text."""

    before: str
    """Empty for an added entry."""
    after: str
    """Empty for a removed entry."""

    @property
    def kind(self) -> ChangeKind:
        if self.before == self.after:
            return ChangeKind.KEPT
        return ChangeKind.ADDED if not self.before else ChangeKind.REPLACED if self.after else ChangeKind.REMOVED

    @property
    def pieces(self) -> Iterator[tuple[str, str]]:
        """The words of both: kept ones as ("", words), others as ("del", words) and ("ins", words)."""
        if self.kind is ChangeKind.KEPT:
            yield "", self.after
            return
        old, new = (re.findall(r"\S+\s*", text) for text in (self.before, self.after))
        codes: Sequence[tuple[str, int, int, int, int]] = [("replace", 0, len(old), 0, len(new))]
        if len(old) * len(new) <= _MOST_PAIRS:
            ours, theirs = ([word.strip() for word in words] for words in (old, new))
            codes = SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
        for tag, i, j, k, m in codes:
            if tag == "equal":
                yield "", "".join(new[k:m])
                continue
            while i < j and k < m and old[i][:2] == new[k][:2]:  # such as 1=? and 1=up, a fact and its change
                yield from (("del", old[i]), ("ins", new[k]))
                i, k = i + 1, k + 1
            yield from ((kind, "".join(words)) for kind, words in (("del", old[i:j]), ("ins", new[k:m])) if words)


def entry_changes(before: str, after: str) -> list[EntryChange]:
    """All entries of both texts, in the order of `after`, removed ones where they stood; blank lines are no entries.

    >>> changes = entry_changes("1. red is up\\n2. blue is down", "1. red is left\\n2. blue is down\\n3. be quick")
    >>> [(change.kind.value, change.before, change.after) for change in changes]
    [('replaced', '1. red is up', '1. red is left'), ('kept', '2. blue is down', '2. blue is down'), ('added', '', '3. be quick')]
    """
    old, new = _lines(before), _lines(after)
    start = num_alike(old, new)
    end = num_alike(old[start:][::-1], new[start:][::-1])
    first, last = ([EntryChange(entry, entry) for entry in of] for of in (old[:start], old[len(old) - end :]))
    return [*first, *_changes(old[start : len(old) - end], new[start : len(new) - end]), *last]


def _changes(old: list[str], new: list[str]) -> Iterator[EntryChange]:
    """As `entry_changes`, of texts whose first entries differ, and whose last."""
    if len(old) * len(new) > _MOST_PAIRS:
        yield from (EntryChange(entry, "") for entry in old)
        yield from (EntryChange("", entry) for entry in new)
        return
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (EntryChange(entry, entry) for entry in old[i:j])
        else:
            yield from _changed_run(old[i:j], new[k:m])


def _changed_run(old: list[str], new: list[str]) -> Iterator[EntryChange]:
    """Each new entry replaces the most similar old one; a lone entry always replaces a lone entry."""
    removed, replaced = dict(enumerate(old)), dict[int, str]()
    for place, entry in enumerate(new):
        best = max(removed, key=lambda index: _similarity(old[index], entry), default=None)
        alone = len(old) == len(new) == 1
        if best is not None and (alone or _similarity(old[best], entry) >= _LEAST_SIMILARITY):
            replaced[place] = removed.pop(best)
    yield from (EntryChange(entry, "") for entry in removed.values())
    yield from (EntryChange(replaced.get(place, ""), entry) for place, entry in enumerate(new))


def _similarity(one: str, other: str) -> float:
    """Share of words in common, and a bonus for the same first word."""
    ours, theirs = one.split(), other.split()
    common = 2 * len({*ours} & {*theirs}) / (len({*ours}) + len({*theirs}))
    return common + _SAME_FIRST_WORD * (ours[0] == theirs[0])


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


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]
