"""Lists of tasks in groups that share something hidden: which split a group belongs to, and how a pack draws from one."""

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cod_lightning.envs.base import Unchanging, split_of_text
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split


class GroupedTasks(Unchanging):
    """Tasks as canonical JSON, in an order that does not depend on where they came from.

    A group belongs to one split, by the hash of its name; without groups, tasks that ask the same do. Where three or more leave a
    split empty that way, they are ranked by hash: the first tenth, at least one, tests, the next validates, the rest trains.

    Args:
        tasks: Records of plain values, each with the name of its group; all names None: there are no groups, and all belong
            together.
        key: Config key of the tasks, for what is said where a split is empty.
        asks: What a task asks, from its JSON; by default all of it.
    """

    __slots__ = ("_groups", "_key", "_num", "_what")

    def __init__(
        self,
        tasks: Iterable[tuple[str | None, Mapping[str, Any]]],
        key: str = "data.env.tasks",
        asks: Callable[[str], str] = str,
    ) -> None:
        rows = {(name, json.dumps(task, sort_keys=True)) for name, task in tasks}
        if not rows:
            raise ConfigError(key, "none", "at least one task", "Fill the list.")
        grouped = any(name is not None for name, _ in rows)
        units = [(name or "" if grouped else asks(text), text) for name, text in rows]
        placed = _splits({unit for unit, _ in units})
        found: dict[Split, dict[str, set[str]]] = {split: {} for split in Split}
        for unit, text in units:
            found[placed[unit]].setdefault(unit if grouped else "", set()).add(text)
        self._key, self._what, self._num = key, "group" if grouped else "task", len(placed)
        self._groups = {split: [sorted(one[name]) for name in sorted(one)] for split, one in found.items()}

    @property
    def all(self) -> list[list[str]]:
        """Groups of all splits."""
        return [group for split in Split for group in self._groups[split]]

    @property
    def sizes(self) -> dict[Split, list[int]]:
        """Tasks of each group of a split."""
        return {split: [*map(len, groups)] for split, groups in self._groups.items()}

    def draw(self, rng: random.Random, split: Split, num_tasks: int) -> list[str]:
        """Tasks of one group of the split, without repeats as long as there are others. Raises `ConfigError` without a group."""
        groups = self._groups[split]
        if not groups:
            what, num = self._what, self._num
            expected = f"at least 3 {what}s, so that the {split} split has one of its own"
            raise ConfigError(self._key, f"{num} {what}{'s' if num != 1 else ''}", expected, f"Give more {what}s.")
        tasks, order = groups[rng.randrange(len(groups))], list[str]()
        while len(order) < num_tasks:
            order += rng.sample(tasks, len(tasks))
        return order[:num_tasks]


def _splits(names: Iterable[str]) -> dict[str, Split]:
    ranked = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    by_hash = {name: split_of_text(name) for name in ranked}
    if len(ranked) < 3 or len(set(by_hash.values())) == len(Split):
        return by_hash
    tenth = max(1, len(ranked) // 10)
    ends = (Split.TEST,) * tenth + (Split.VALIDATION,) * tenth
    return {name: ends[n] if n < len(ends) else Split.TRAIN for n, name in enumerate(ranked)}


def group_name(value: Any) -> str:
    """A name for a group by the value that its tasks share. Raises `ValueError` and `TypeError` for what is no JSON."""
    return json.dumps(value, sort_keys=True, allow_nan=False)
