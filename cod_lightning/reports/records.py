"""Lifecycles in the short form that the page reads: no token ids, log-probs as whole numbers, and every text once.

A group becomes a `ShortGroup` as soon as it has been read, since whole lifecycles of a long run do not fit into memory; on the
`Shelf` its texts become numbers of a string table.
"""

import json
import math
from array import array
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from typing import Any

from cod_lightning.reports.advantages import GroupCredit
from cod_lightning.reports.entries import EntryHistory, entry_changes, entry_histories
from cod_lightning.reports.gaps import EpisodeGaps, Gaps
from cod_lightning.reports.lines import PlayedGroup
from cod_lightning.reports.walk import lake_of, path_of
from cod_lightning.types import Episode, EpisodeKind, Pack, StopReason, Turn

_LOWEST = -650.0
"""Lower log-probs are shown as this one: its hundredths fit into 16 bits."""
MOST_ENTRIES = 200
"""Histories of entries of a lifecycle that the page shows."""
_TEXTS = ("b", "a", "fb", "er")
Record = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortGroup:
    """Sibling lifecycles, still with their texts."""

    file: int
    """Number of the file that they are from."""
    pack: Record
    lives: list[Record]
    num_sampled: int
    """Turns in which a model sampled something."""
    num_worded: int
    """Those among them with as many words as tokens, the stop token aside."""

    @property
    def size(self) -> int:
        """About how many characters it is, if every text stood there once."""
        turns = [turn for life in self.lives for episode in life["e"] for turn in episode["t"]]
        said = sum(len(turn[0]) + len(turn[1]) + 3 * len(turn[4]) + 4 * len(turn[5]) + 30 for turn in turns)
        return said + sum(len(one[1]) + 4 * len(one[4]) + 60 for life in self.lives for one in life["h"])


def short_group(file: int, played: PlayedGroup, credited: GroupCredit | None, gaps: Gaps | None = None) -> ShortGroup:
    """The group without what the page does not show."""
    group, lives = played.group, []
    pack = _pack(group.pack)
    for index, life in enumerate(group.lifecycles):
        episodes = [_episode(episode, pack) for episode in life.episodes]
        context = None
        for record in episodes:
            if record["u"] == 1:
                before = record["b"] if context is None else context
                record["d"] = [[one.kind.value, one.before, one.after] for one in entry_changes(before, record["a"])]
            else:
                context = record["a"]
        if credited is not None:
            for e, record in enumerate(episodes):
                record |= {"R": number(credited.returns[index][e]), "A": number(credited.advantages[index][e])}
        for record, found in zip(episodes, gaps[index] if gaps else (), strict=False):
            _add_gaps(record, found)
        entries = entry_histories(life.episodes)
        shown = [_entry(one, life.episodes) for one in entries[:MOST_ENTRIES]]
        lives.append(
            {
                "f": file,
                "s": played.step,
                "k": life.sibling,
                "e": episodes,
                "h": shown,
                "more": len(entries) - len(shown),
            }
        )
    turns = [turn for life in group.lifecycles for one in life.episodes for turn in one.turns if turn.action_ids]
    worded = sum(len(turn.response.split()) == len(turn.action_ids) - (turn.stop is StopReason.STOP) for turn in turns)
    return ShortGroup(file=file, pack=pack, lives=lives, num_sampled=len(turns), num_worded=worded)


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
            episodes = [self._interned(episode) for episode in life["e"]]
            entries = [self._interned_entry(entry) for entry in life["h"]]
            self._lives.append(life | {"g": self._num_groups, "p": pack - 1, "e": episodes, "h": entries})
        self._num_groups += 1

    def as_data(self) -> Record:
        """For the page."""
        packs = [json.loads(text) for text in self._packs.texts[1:]]
        return {"strings": self._strings.texts, "packs": packs, "lifecycles": self._lives}

    def _interned(self, episode: Record) -> Record:
        add = self._strings.add
        turns = [[add(turn[0]), add(turn[1]), *turn[2:4], *(one.tolist() for one in turn[4:])] for turn in episode["t"]]
        interned = episode | {key: add(episode[key]) for key in _TEXTS} | {"t": turns}
        if "d" in episode:
            interned["d"] = [[kind, add(before), add(after)] for kind, before, after in episode["d"]]
        return interned

    def _interned_entry(self, entry: list[Any]) -> list[Any]:
        add = self._strings.add
        key, text, came, changes, shown, gone, why, *earned = entry
        return [
            add(key),
            add(text),
            came,
            [[index, add(before)] for index, before in changes],
            shown,
            gone,
            add(why),
            *earned,
        ]


def number(value: float | None) -> float | None:
    """Five digits; None where it is missing or not finite, which JSON cannot hold."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")


def _pack(pack: Pack) -> Record:
    tasks = [{"id": str(task.id), "spec": _spec(task.spec), "lake": lake_of(task.spec)} for task in pack.tasks]
    return {"id": str(pack.id), "split": pack.split.value, "tasks": tasks}


def _episode(episode: Episode, pack: Record) -> Record:
    record: Record = {
        "u": {EpisodeKind.SOLVE: 0, EpisodeKind.PROPOSE: 2, EpisodeKind.WRITE: 3}.get(episode.kind, 1),
        "n": int(episode.position),
        "st": episode.status.value,
        "r": number(episode.reward),
        "ok": None if episode.success is None else bool(episode.success),
        "b": str(episode.context_before),
        "a": str(episode.context_after),
        "fb": str(episode.feedback),
        "er": str(episode.error),
        "R": None,
        "A": None,
        "G": None,
        "t": [_turn(turn) for turn in episode.turns],
    }
    if episode.parts:
        record["rp"] = {str(name): number(value) for name, value in episode.parts.items()}
    lake = pack["tasks"][episode.position]["lake"] if 0 <= episode.position < len(pack["tasks"]) else None
    if lake is not None and episode.kind is EpisodeKind.SOLVE:
        record["w"] = path_of(lake, [turn.response for turn in episode.turns])
    return record


def _entry(found: EntryHistory, episodes: Sequence[Episode]) -> list[Any]:
    """The fields of the history in their order, mean reward, and of how many tasks."""
    mean, count = found.earned(episodes)
    return [*astuple(found), number(mean), count]


def _turn(turn: Turn) -> list[Any]:
    """Observation, response, stop reason, policy version, log-probs, gaps; log-probs only where a model sampled.

    Log-probs are in hundredths of a nat, without their sign.
    """
    sampled = turn.behaviour_logprobs if turn.policy_version >= 0 else ()
    within = (min(0.0, max(_LOWEST, one)) if one == one else _LOWEST for one in sampled)
    logprobs = array("H", (round(-100 * one) for one in within))
    return [str(turn.observation), str(turn.response), turn.stop.value, int(turn.policy_version), logprobs, array("i")]


def _add_gaps(record: Record, found: EpisodeGaps | None) -> None:
    """Each turn's gaps in ten thousandths of a nat; `G` of the episode: updates since it was sampled, mean and largest gap."""
    if found is None or not found.gaps:
        return
    sizes, rest = [abs(gap) for gap in found.gaps], iter(found.gaps)
    record["G"] = [found.updates, number(sum(sizes) / len(sizes)), number(max(sizes))]
    for turn in record["t"]:
        turn[5].extend(round(10_000 * min(-_LOWEST, max(_LOWEST, gap))) for gap in islice(rest, len(turn[4])))


def _spec(spec: object) -> str:
    """The spec as text, a line for each of its fields."""
    if isinstance(spec, dict):
        return "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in spec.items())
    return json.dumps(spec, ensure_ascii=False)
