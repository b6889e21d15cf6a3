"""The record of a lifecycle as the page reads it: without token ids, with log-probs as whole numbers, and every text once.

Fields that `rollout/transcript.py` has too keep its names.

A group becomes a `ShortGroup` as soon as it has been read; on the `Shelf` its texts become numbers of a string table.
"""

import json
import math
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from cod_lightning.envs.answers import code_of
from cod_lightning.envs.facts import NUMBERS
from cod_lightning.envs.frozen_lake.lake import STEPS, Cell, neighbour
from cod_lightning.reports.entries import EntryHistory, entry_changes, entry_histories
from cod_lightning.reports.gaps import EpisodeGaps, Gaps
from cod_lightning.rollout.transcript import PlayedGroup
from cod_lightning.types import Episode, EpisodeKind, Pack, StopReason, Turn

_LOWEST = -650.0
"""Lower log-probs are shown as this one: its hundredths fit into 16 bits."""
MOST_ENTRIES = 200
"""Histories of entries of a lifecycle that the page shows."""
_TEXTS = ("context_before", "context_after", "feedback", "error")
_WITHOUT_CHANGES = (EpisodeKind.SOLVE, EpisodeKind.WRITE)
"""Kinds of episodes that do not rewrite the context."""
Record = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortGroup:
    """Sibling lifecycles, still with their texts."""

    pack: Record
    lives: list[Record]
    num_sampled: int
    """Turns in which a model sampled something."""
    num_worded: int
    """Those among them with as many words as tokens, the stop token aside."""


def short_group(file: int, played: PlayedGroup, gaps: Gaps | None = None) -> ShortGroup:
    """The group without what the page does not show."""
    group, lives = played.group, []
    pack = _pack(group.pack)
    for index, life in enumerate(group.lifecycles):
        episodes = [_episode(episode, pack) for episode in life.episodes]
        context = None
        for record in episodes:
            if record["kind"] in _WITHOUT_CHANGES:
                context = record["context_after"]
                continue
            before = record["context_before"] if context is None else context
            changes = entry_changes(before, record["context_after"])
            record["changes"] = [[one.kind, one.before, one.after] for one in changes]
        for record, found in zip(episodes, gaps[index] if gaps else (), strict=False):
            _add_gaps(record, found)
        entries = entry_histories(life.episodes)
        shown = [_entry(one, life.episodes) for one in entries[:MOST_ENTRIES]]
        lives.append(
            {
                "file": file,
                "step": played.step,
                "sibling": life.sibling,
                "episodes": episodes,
                "entries": shown,
                "more_entries": len(entries) - len(shown),
            }
        )
    turns = [turn for life in group.lifecycles for one in life.episodes for turn in one.turns if turn.action_ids]
    worded = sum(len(turn.response.split()) == len(turn.action_ids) - (turn.stop is StopReason.STOP) for turn in turns)
    return ShortGroup(pack=pack, lives=lives, num_sampled=len(turns), num_worded=worded)


class StringTable:
    """Texts by number, in the order in which they came; 0 is the empty one. Contexts and observations repeat a lot.

    >>> table = StringTable()
    >>> table.add("up"), table.add("down"), table.add("up"), table.texts
    (1, 2, 1, ['', 'up', 'down'])
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def add(self, text: str) -> int:
        """The number of this text."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> list[str]:
        """All texts, each at its number."""
        return list(self._numbers)


class Shelf:
    """All that the page's browser of lifecycles shows."""

    def __init__(self) -> None:
        self._strings, self._packs = StringTable(), StringTable()
        self._lives: list[Record] = []
        self._num_groups = 0

    def add(self, group: ShortGroup) -> None:
        """Put a group's lifecycles at the end."""
        pack = self._packs.add(json.dumps(group.pack))
        for life in group.lives:
            episodes = [self._interned(episode) for episode in life["episodes"]]
            entries = [self._interned_entry(entry) for entry in life["entries"]]
            of_group = {"group": self._num_groups, "pack": pack - 1}
            self._lives.append(life | of_group | {"episodes": episodes, "entries": entries})
        self._num_groups += 1

    def as_data(self) -> Record:
        """For the page."""
        packs = [json.loads(text) for text in self._packs.texts[1:]]
        return {"strings": self._strings.texts, "packs": packs, "lifecycles": self._lives}

    def _interned(self, episode: Record) -> Record:
        add = self._strings.add
        turns = [
            turn
            | {name: add(turn[name]) for name in ("observation", "response")}
            | {name: turn[name].tolist() for name in ("logprobs", "gaps")}
            for turn in episode["turns"]
        ]
        interned = episode | {name: add(episode[name]) for name in _TEXTS} | {"turns": turns}
        if "changes" in episode:
            interned["changes"] = [[kind, add(before), add(after)] for kind, before, after in episode["changes"]]
        return interned

    def _interned_entry(self, entry: Record) -> Record:
        add = self._strings.add
        changes = [[index, add(before)] for index, before in entry["changes"]]
        return entry | {name: add(entry[name]) for name in ("key", "text", "why")} | {"changes": changes}


def number(value: float | None) -> float | None:
    """Five digits; None where it is missing or not finite, which JSON cannot hold."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")


def _pack(pack: Pack) -> Record:
    tasks = [{"id": str(task.id), "spec": _spec(task.spec), "lake": lake_of(task.spec)} for task in pack.tasks]
    return {"id": str(pack.id), "split": pack.split.value, "tasks": tasks}


def _episode(episode: Episode, pack: Record) -> Record:
    record: Record = {name: getattr(episode, name) for name in ("kind", "position", "status", "success", *_TEXTS)}
    record |= {
        "reward": number(episode.reward),
        "parts": {name: number(value) for name, value in episode.parts.items()},
        "advantage": None,
        "gap": None,
        "turns": [_turn(turn) for turn in episode.turns],
    }
    lake = pack["tasks"][episode.position]["lake"] if 0 <= episode.position < len(pack["tasks"]) else None
    if lake is not None and episode.kind is EpisodeKind.SOLVE:
        record["path"] = path_of(lake, [turn.response for turn in episode.turns])
    return record


def _entry(found: EntryHistory, episodes: Sequence[Episode]) -> Record:
    """The history, with the mean reward of the tasks that were shown the entry, and their number."""
    mean, count = found.earned(episodes)
    return asdict(found) | {"earned": number(mean), "num_tasks": count}


def _turn(turn: Turn) -> Record:
    """With log-probs in hundredths of a nat, without their sign, and only where a model sampled."""
    sampled = turn.behaviour_logprobs if turn.policy_version >= 0 else ()
    within = (min(0.0, max(_LOWEST, one)) if one == one else _LOWEST for one in sampled)
    logprobs = array("H", (round(-100 * one) for one in within))
    shown = {name: getattr(turn, name) for name in ("observation", "response", "stop", "policy_version")}
    return shown | {"logprobs": logprobs, "gaps": array("i")}


def _add_gaps(record: Record, found: EpisodeGaps | None) -> None:
    """Each turn's gaps in ten thousandths of a nat; of the episode its advantage, later updates, mean and largest gap."""
    if found is None or not found.gaps:
        return
    sizes, rest = [abs(gap) for gap in found.gaps], iter(found.gaps)
    record["advantage"] = number(found.advantage)
    record["gap"] = {
        "updates": found.updates,
        "mean": number(sum(sizes) / len(sizes)),
        "largest": number(max(sizes)),
    }
    for turn in record["turns"]:
        own = islice(rest, len(turn["logprobs"]))
        turn["gaps"].extend(round(10_000 * min(-_LOWEST, max(_LOWEST, gap))) for gap in own)


def _spec(spec: object) -> str:
    """The spec as text, a line for each of its fields."""
    if isinstance(spec, dict):
        return "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in spec.items())
    return json.dumps(spec, ensure_ascii=False)


_LARGEST = 32


def lake_of(spec: object) -> dict[str, Any] | None:
    """Rows, mapping and names of a lake's task, or None for a task of any other world."""
    if not isinstance(spec, Mapping):
        return None
    rows, mapping = _texts(spec.get("rows")), _texts(spec.get("mapping"))
    square = 1 < len(rows) <= _LARGEST and all(len(row) == len(rows) for row in rows)
    if not square or not re.fullmatch("[SFHG]+", letters := "".join(rows)):
        return None
    if letters.count("S") != 1 or len(mapping) != 4 or not set(mapping) <= STEPS.keys():
        return None
    return {"rows": list(rows), "mapping": list(mapping), "noun": "Direction", "names": list(NUMBERS)}


def path_of(lake: Mapping[str, Any], responses: Sequence[str]) -> list[Cell]:
    """The cells stood on, the start included, up to the first hole or goal; an answer that cannot be read moves nowhere."""
    rows, mapping = lake["rows"], lake["mapping"]
    path = [next((r, row.index("S")) for r, row in enumerate(rows) if "S" in row)]
    for response in responses:
        code, _ = code_of(response, "Direction", 4)
        if code:
            path.append(neighbour(path[-1], mapping[code - 1], len(rows)))
        if rows[path[-1][0]][path[-1][1]] in "GH":
            break
    return path


def _texts(found: object) -> tuple[str, ...]:
    listed = found if isinstance(found, list | tuple) else ()
    return tuple(listed) if all(isinstance(one, str) for one in listed) else ()
