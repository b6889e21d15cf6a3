"""The record of a lifecycle as the page reads it: without token ids, with rounded log-probs, and every text once.

Fields that `rollout/transcript.py` has too keep its names.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from cod_lightning.markdown import visible
from cod_lightning.reports.entries import EntryHistory, entry_changes, entry_histories
from cod_lightning.reports.lines import LogprobFile
from cod_lightning.rollout.policy_logprobs import PolicyLogprobs
from cod_lightning.rollout.transcript import PlayedGroup
from cod_lightning.types import Episode, EpisodeKind, Turn

MOST_ENTRIES = 200
"""Histories of entries of a lifecycle that the page shows."""
Record = dict[str, Any]


class Shelf:
    """All that the page's browser of lifecycles shows, with every text once: contexts and observations repeat a lot."""

    def __init__(self) -> None:
        self.numbers = {"": 0}
        """Text -> its number."""
        self.packs: list[Record] = []
        """One for each group."""
        self.lifecycles: list[Record] = []

    def add(self, file: int, played: PlayedGroup, logprobs: LogprobFile | None = None) -> None:
        """Put a group's lifecycles at the end."""
        pack, lives = played.group.pack, list[Record]()
        for life in played.group.lifecycles:
            record: Record = {"file": file, "step": played.step, "sibling": life.sibling, "group": len(self.packs)}
            record["episodes"] = [
                self._episode(one, None if logprobs is None else logprobs.of(played, life.sibling, index, one))
                for index, one in enumerate(life.own)
            ]
            entries = entry_histories(life.own)
            record["entries"] = [self._entry(one, life.own) for one in entries[:MOST_ENTRIES]]
            lives.append(record | {"more_entries": max(0, len(entries) - MOST_ENTRIES)})
        tasks = [self._text(_spec(task.spec)) for task in pack.tasks]
        self.lifecycles += lives
        self.packs.append({"id": visible(str(pack.id)), "split": pack.split.value, "tasks": tasks})

    def _text(self, text: str) -> int:
        """The text's number."""
        return self.numbers.setdefault(visible(text), len(self.numbers))

    def _episode(self, episode: Episode, trained: PolicyLogprobs | None) -> Record:
        texts = ("context_before", "context_after", "feedback", "error")
        policy = iter(trained.logprobs if trained else ())
        record: Record = {name: getattr(episode, name) for name in ("kind", "position", "status", "success")}
        record |= {name: self._text(getattr(episode, name)) for name in texts}
        record |= {
            "reward": number(episode.reward),
            "parts": {visible(name): number(value) for name, value in episode.parts.items()},
            "advantage": number(trained.advantage) if trained else None,
            "updates": trained.updates if trained else None,
            "turns": [self._turn(turn, policy) for turn in episode.turns],
        }
        if episode.kind is EpisodeKind.UPDATE:
            changes = entry_changes(episode.context_before, episode.context_after)
            record["changes"] = [[kind, self._text(entry)] for kind, entry in changes]
        return record

    def _turn(self, turn: Turn, policy: Iterable[float]) -> Record:
        """With log-probs only where a model sampled, and the policy's minus these; takes the policy's of its own tokens."""
        sampled = turn.behaviour_logprobs
        return {
            "observation": self._text(turn.observation),
            "response": self._text(turn.response),
            "stop": turn.stop,
            "policy_version": turn.policy_version,
            "logprobs": [number(one, 3) for one in sampled if turn.policy_version >= 0],
            "gaps": [number(own - one, 3) for one, own in zip(sampled, policy, strict=False)],
        }

    def _entry(self, found: EntryHistory, episodes: Sequence[Episode]) -> Record:
        """The history, with the mean reward of the tasks that were shown the entry, and their number."""
        mean, count = found.earned(episodes)
        texts = {name: self._text(getattr(found, name)) for name in ("key", "text", "why")}
        changes = [[index, self._text(before)] for index, before in found.changes]
        return asdict(found) | texts | {"changes": changes, "earned": number(mean), "num_tasks": count}


def number(value: float | None, digits: int = 5) -> float | None:
    """With so many digits; None where it is missing or not finite, which JSON cannot hold."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def _spec(spec: object) -> str:
    """The spec as text, a line for each of its fields."""
    if isinstance(spec, dict):
        return "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in spec.items())
    return json.dumps(spec, ensure_ascii=False)
