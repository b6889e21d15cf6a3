"""The record of a lifecycle as the page reads it: without token ids, with log-probs as whole numbers, and every text once.

Fields that `rollout/transcript.py` has too keep its names.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from cod_lightning.markdown import visible
from cod_lightning.reports.entries import EntryHistory, entry_changes, entry_histories
from cod_lightning.reports.gaps import LogprobFile
from cod_lightning.rollout.policy_logprobs import PolicyLogprobs
from cod_lightning.rollout.transcript import PlayedGroup
from cod_lightning.types import Episode, EpisodeKind, Turn

_LOWEST = -650.0
"""Lower log-probs are shown as this one."""
MOST_ENTRIES = 200
"""Histories of entries of a lifecycle that the page shows."""
Record = dict[str, Any]


class Shelf:
    """All that the page's browser of lifecycles shows, with every text once: contexts and observations repeat a lot."""

    def __init__(self) -> None:
        self._numbers = {"": 0}
        self._packs: list[Record] = []
        """One for each group."""
        self.lifecycles: list[Record] = []

    def add(self, file: int, played: PlayedGroup, logprobs: LogprobFile | None = None) -> None:
        """Put a group's lifecycles at the end."""
        pack, lives = played.group.pack, list[Record]()
        for life in played.group.lifecycles:
            entries = entry_histories(life.own)
            record: Record = {"file": file, "step": played.step, "sibling": life.sibling, "group": len(self._packs)}
            record["episodes"] = [
                self._episode(one, None if logprobs is None else logprobs.of(played, life.sibling, index, one))
                for index, one in enumerate(life.own)
            ]
            record["entries"] = [self._entry(one, life.own) for one in entries[:MOST_ENTRIES]]
            lives.append(record | {"more_entries": max(0, len(entries) - MOST_ENTRIES)})
        tasks = [self._text(_spec(task.spec)) for task in pack.tasks]
        self.lifecycles += lives
        self._packs.append({"id": visible(str(pack.id)), "split": pack.split.value, "tasks": tasks})

    @property
    def strings(self) -> list[str]:
        """All texts, each at its number."""
        return list(self._numbers)

    def as_data(self) -> Record:
        """For the page."""
        return {"strings": self.strings, "packs": self._packs, "lifecycles": self.lifecycles}

    def _text(self, text: str) -> int:
        """The text's number."""
        return self._numbers.setdefault(visible(text), len(self._numbers))

    def _episode(self, episode: Episode, trained: PolicyLogprobs | None) -> Record:
        record: Record = {name: getattr(episode, name) for name in ("kind", "position", "status", "success")}
        record |= {
            name: self._text(getattr(episode, name))
            for name in ("context_before", "context_after", "feedback", "error")
        }
        record |= {
            "reward": number(episode.reward),
            "parts": {visible(name): number(value) for name, value in episode.parts.items()},
            "advantage": None,
            "gap": None,
        }
        policy = None
        if trained is not None and trained.logprobs:
            policy = iter(trained.logprobs)
            sampled = (logprob for turn in episode.turns for logprob in turn.behaviour_logprobs)
            sizes = [abs(one - other) for one, other in zip(trained.logprobs, sampled, strict=True)]
            record["advantage"] = number(trained.advantage)
            mean, largest = number(sum(sizes) / len(sizes)), number(max(sizes))
            record["gap"] = {"updates": trained.updates, "mean": mean, "largest": largest}
        record["turns"] = [self._turn(turn, policy) for turn in episode.turns]
        if episode.kind is EpisodeKind.UPDATE:
            changes = entry_changes(episode.context_before, episode.context_after)
            record["changes"] = [[one.kind, [[kind, self._text(text)] for kind, text in one.pieces]] for one in changes]
        return record

    def _turn(self, turn: Turn, policy: Iterator[float] | None) -> Record:
        """With log-probs in hundredths of a nat, without their sign, and only where a model sampled; gaps in ten thousandths."""
        sampled = turn.behaviour_logprobs if turn.policy_version >= 0 else ()
        own = [] if policy is None else list(islice(policy, len(turn.behaviour_logprobs)))
        gaps = [one - other for one, other in zip(own, turn.behaviour_logprobs, strict=False)]
        return {
            "observation": self._text(turn.observation),
            "response": self._text(turn.response),
            "stop": turn.stop,
            "policy_version": turn.policy_version,
            "logprobs": [round(-100 * (min(0.0, max(_LOWEST, one)) if one == one else _LOWEST)) for one in sampled],
            "gaps": [round(10_000 * min(-_LOWEST, max(_LOWEST, gap))) for gap in gaps],
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


def _spec(spec: object) -> str:
    """The spec as text, a line for each of its fields."""
    if isinstance(spec, dict):
        return "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in spec.items())
    return json.dumps(spec, ensure_ascii=False)
