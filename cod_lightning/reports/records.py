"""The record of a lifecycle as the page reads it: without token ids, with log-probs as whole numbers, and every text once.

Fields that `rollout/transcript.py` has too keep its names.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from cod_lightning.envs.answers import code_of
from cod_lightning.envs.facts import NUMBERS
from cod_lightning.envs.frozen_lake.lake import STEPS, Cell, neighbour
from cod_lightning.reports.entries import EntryHistory, entry_changes, entry_histories
from cod_lightning.reports.gaps import EpisodeGaps, Gaps
from cod_lightning.rollout.transcript import PlayedGroup
from cod_lightning.types import Episode, EpisodeKind, Pack, Turn

_LOWEST = -650.0
"""Lower log-probs are shown as this one."""
MOST_ENTRIES = 200
"""Histories of entries of a lifecycle that the page shows."""
_TEXTS = ("context_before", "context_after", "feedback", "error")
Record = dict[str, Any]


class Shelf:
    """All that the page's browser of lifecycles shows, with every text once: contexts and observations repeat a lot."""

    def __init__(self) -> None:
        self._numbers = {"": 0}
        self._packs: list[Record] = []
        """One for each group."""
        self.lifecycles: list[Record] = []

    def add(self, file: int, played: PlayedGroup, gaps: Gaps | None = None) -> None:
        """Put a group's lifecycles at the end."""
        pack, lives = self._pack(played.group.pack), list[Record]()
        for index, life in enumerate(played.group.lifecycles):
            episodes = list(self._episodes(life.own, pack))
            for record, found in zip(episodes, gaps[index] if gaps else (), strict=False):
                _add_gaps(record, found)
            entries = entry_histories(life.own)
            of_life = {
                "file": file,
                "step": played.step,
                "sibling": life.sibling,
                "group": len(self._packs),
            }
            shown = [self._entry(one, life.own) for one in entries[:MOST_ENTRIES]]
            lives.append(of_life | {"episodes": episodes, "entries": shown, "more_entries": len(entries) - len(shown)})
        self.lifecycles += lives
        self._packs.append(pack)

    @property
    def strings(self) -> list[str]:
        """All texts, each at its number."""
        return list(self._numbers)

    def as_data(self) -> Record:
        """For the page."""
        return {"strings": self.strings, "packs": self._packs, "lifecycles": self.lifecycles}

    def _text(self, text: str) -> int:
        """The text's number."""
        return self._numbers.setdefault(text, len(self._numbers))

    def _pack(self, pack: Pack) -> Record:
        tasks = [{"spec": self._text(_spec(task.spec)), "lake": lake_of(task.spec)} for task in pack.tasks]
        return {"id": str(pack.id), "split": pack.split.value, "tasks": tasks}

    def _episodes(self, episodes: Sequence[Episode], pack: Record) -> Iterator[Record]:
        for episode in episodes:
            record: Record = {name: getattr(episode, name) for name in ("kind", "position", "status", "success")}
            record |= {name: self._text(getattr(episode, name)) for name in _TEXTS}
            record |= {
                "reward": number(episode.reward),
                "parts": {name: number(value) for name, value in episode.parts.items()},
                "advantage": None,
                "gap": None,
                "turns": [self._turn(turn) for turn in episode.turns],
            }
            lake = pack["tasks"][episode.position]["lake"] if 0 <= episode.position < len(pack["tasks"]) else None
            if lake is not None and episode.kind is EpisodeKind.SOLVE:
                record["path"] = path_of(lake, [turn.response for turn in episode.turns])
            if episode.kind is EpisodeKind.UPDATE:
                changes = entry_changes(episode.context_before, episode.context_after)
                record["changes"] = [[one.kind, self._text(one.before), self._text(one.after)] for one in changes]
            yield record

    def _turn(self, turn: Turn) -> Record:
        """With log-probs in hundredths of a nat, without their sign, and only where a model sampled."""
        sampled = turn.behaviour_logprobs if turn.policy_version >= 0 else ()
        within = (min(0.0, max(_LOWEST, one)) if one == one else _LOWEST for one in sampled)
        return {
            "observation": self._text(turn.observation),
            "response": self._text(turn.response),
            "stop": turn.stop,
            "policy_version": turn.policy_version,
            "logprobs": [round(-100 * one) for one in within],
            "gaps": [],
        }

    def _entry(self, found: EntryHistory, episodes: Sequence[Episode]) -> Record:
        """The history, with the mean reward of the tasks that were shown the entry, and their number."""
        mean, count = found.earned(episodes)
        texts = {name: self._text(getattr(found, name)) for name in ("key", "text", "why")}
        changes = [[index, self._text(before)] for index, before in found.changes]
        return asdict(found) | texts | {"changes": changes, "earned": number(mean), "num_tasks": count}


def number(value: float | None) -> float | None:
    """Five digits; None where it is missing or not finite, which JSON cannot hold."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")


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
    match spec:
        case {"rows": [*rows], "mapping": [_, _, _, _] as mapping} if 1 < len(rows) <= _LARGEST:
            rows, mapping = list(map(str, rows)), list(map(str, mapping))
        case _:
            return None
    letters = "".join(rows)
    is_square = all(len(row) == len(rows) for row in rows)
    if not is_square or not set(letters) <= set("SFHG") or letters.count("S") != 1 or not set(mapping) <= STEPS.keys():
        return None
    return {"rows": rows, "mapping": mapping, "noun": "Direction", "names": list(NUMBERS)}


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
