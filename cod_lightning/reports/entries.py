"""The difference of two contexts, entry by entry: `context diff` prints it, the report draws it. An entry is a line of the text."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

_SAME_FIRST_WORD = 0.5
"""Similarity of two entries that begin alike, such as with the same number or key, beside the share of words in common."""
_LEAST_SIMILARITY = 0.5
"""Below it an entry is removed and another one added."""
_MOST_PAIRS = 250_000
"""Pairs of entries that are compared; texts with more have all their entries removed and added, since comparing takes too long."""


class ChangeKind(StrEnum):
    """What became of an entry."""

    KEPT = "kept"
    REMOVED = "removed"
    ADDED = "added"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One entry of either text."""

    kind: ChangeKind
    before: str
    """Empty for an added entry."""
    after: str
    """Empty for a removed entry."""


def entry_changes(before: str, after: str) -> list[EntryChange]:
    """All entries of both texts, in the order of `after`, removed ones where they stood; blank lines are no entries.

    >>> changes = entry_changes("1. red is up\\n2. blue is down", "1. red is left\\n2. blue is down\\n3. be quick")
    >>> [(change.kind.value, change.before, change.after) for change in changes]
    [('replaced', '1. red is up', '1. red is left'), ('kept', '2. blue is down', '2. blue is down'), ('added', '', '3. be quick')]
    """
    old, new = ([line for line in text.splitlines() if line.strip()] for text in (before, after))
    changes: list[EntryChange] = []
    if old != new and len(old) * len(new) > _MOST_PAIRS:
        changes += (EntryChange(ChangeKind.REMOVED, entry, "") for entry in old)
        return [*changes, *(EntryChange(ChangeKind.ADDED, "", entry) for entry in new)]
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            changes += (EntryChange(ChangeKind.KEPT, entry, entry) for entry in old[i:j])
        else:
            changes += _changed_run(old[i:j], new[k:m])
    return changes


def _changed_run(old: list[str], new: list[str]) -> Iterator[EntryChange]:
    """Each new entry replaces the most similar old one; a lone entry always replaces a lone entry."""
    removed, replaced = dict(enumerate(old)), dict[int, str]()
    for place, entry in enumerate(new):
        best = max(removed, key=lambda index: _similarity(old[index], entry), default=None)
        alone = len(old) == len(new) == 1
        if best is not None and (alone or _similarity(old[best], entry) >= _LEAST_SIMILARITY):
            replaced[place] = removed.pop(best)
    for entry in removed.values():
        yield EntryChange(ChangeKind.REMOVED, entry, "")
    for place, entry in enumerate(new):
        if place in replaced:
            yield EntryChange(ChangeKind.REPLACED, replaced[place], entry)
        else:
            yield EntryChange(ChangeKind.ADDED, "", entry)


def _similarity(one: str, other: str) -> float:
    """Share of words in common, and a bonus for the same first word."""
    ours, theirs = one.split(), other.split()
    common = 2 * len({*ours} & {*theirs}) / (len({*ours}) + len({*theirs}))
    return common + _SAME_FIRST_WORD * (ours[0] == theirs[0])
