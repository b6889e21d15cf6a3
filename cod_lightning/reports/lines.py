"""Files of lifecycles, and of what updates had of them, read leniently: what cannot be read is counted, with the reason.

`rollout/transcript.py` reads strictly, for replay; a report has to open what a killed run or another version left behind.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from cod_lightning.errors import DataError
from cod_lightning.rollout import policy_logprobs, transcript
from cod_lightning.rollout.policy_logprobs import PolicyLogprobs, action_digest
from cod_lightning.rollout.transcript import PlayedGroup
from cod_lightning.types import Episode

_HEAD = re.compile(rb'\{"schema": ?(\d{1,9}), ?"step": ?(\d+), ?"pack": ?\{"id": ?("(?:[^"\\]|\\.)*")')
"""How a line begins, as `transcript.dump` writes it."""

UNREAD = "so that the report stays small (whole groups, taken evenly)"
"""Why lines of a large file are passed over."""


@dataclass(slots=True)
class LifecycleFile:
    """One `lifecycles/*.jsonl`; `left_out` is complete once `groups` has come to its end."""

    path: Path
    left_out: Counter[str] = field(default_factory=Counter)
    """Lines that were not read, by reason."""

    def groups(self, most_bytes: int | None = None) -> Iterator[PlayedGroup]:
        """Groups in the order of the file; a group ends where the pack, the step or the order of siblings changes.

        Of a file that is larger than `most_bytes` as many whole groups as that, taken evenly.
        """
        size = self.path.stat().st_size
        share = 1.0 if most_bytes is None or size <= most_bytes else most_bytes / size
        with self.path.open("rb") as file:
            yield from self.joined(self._spread(filter(bytes.strip, file), share))

    def joined(self, lines: Iterable[bytes]) -> Iterator[PlayedGroup]:
        """The groups of these lines of the file."""
        return transcript.joined(one for one in map(self._read, filter(bytes.strip, lines)) if one is not None)

    def _spread(self, lines: Iterable[bytes], share: float) -> Iterator[bytes]:
        """That share of the lines, taken evenly; those of one step and pack that stand together stay together."""
        for place, (_, run) in enumerate(groupby(lines, lambda line: (head := _HEAD.match(line)) and head.groups())):
            if math.floor(place * share) != math.floor((place - 1) * share):
                yield from run
            else:
                self.left_out[UNREAD] += sum(1 for _ in run)

    def _read(self, line: bytes) -> PlayedGroup | None:
        head = _HEAD.match(line)
        if head is not None and int(head[1]) != transcript.SCHEMA:
            self.left_out[f"schema {int(head[1])}, not {transcript.SCHEMA}"] += 1
            return None
        try:
            return transcript.load_line(line.decode("utf-8"), "")
        except (DataError, UnicodeDecodeError):
            self.left_out["torn or damaged"] += 1
            return None


@dataclass(slots=True)
class LogprobFile:
    """The `train_logprobs*.jsonl` beside a file of training lifecycles: advantages, and log-probs of the policy that was trained.

    Only where its lines begin is kept in memory.
    """

    path: Path
    left_out: Counter[str] = field(default_factory=Counter)
    """Lines that were not read, by reason; complete once all episodes were asked for."""
    _places: dict[tuple[int, str, int, int], int] = field(default_factory=dict)
    """Step, pack, sibling and episode -> offset in the file; the later line of an episode counts."""

    @classmethod
    def beside(cls, lifecycles: Path) -> "LogprobFile | None":
        """The one that belongs to `train.jsonl` or `train.rankR.jsonl`; None beside any other file."""
        if not re.fullmatch(r"train(\.rank\d+)?\.jsonl", lifecycles.name):
            return None
        made = cls(lifecycles.with_name(policy_logprobs.NAME + lifecycles.name.removeprefix("train")))
        if not made.path.is_file():
            return made
        with made.path.open("rb") as file:
            place = 0
            for line in file:
                try:
                    record = policy_logprobs.load(line)
                    made._places[record.step, record.pack, record.sibling, record.episode] = place
                except DataError as error:
                    if line.strip():  # a run that goes on begins with a blank one
                        made.left_out[str(error)] += 1
                place += len(line)
        return made

    def of(self, played: PlayedGroup, sibling: int, index: int, episode: Episode) -> PolicyLogprobs | None:
        """Of that episode; None where no update trained on it, or its line is missing."""
        place = self._places.get((played.step, played.group.pack.id, sibling, index))
        if place is None:
            return None
        with self.path.open("rb") as file:
            file.seek(place)
            record = policy_logprobs.load(file.readline())
        sampled = sum(len(turn.behaviour_logprobs) for turn in episode.turns)
        if record.digest != action_digest(episode) or sampled != len(record.logprobs):
            self.left_out["about other tokens than the lifecycle's"] += 1
            return None
        return record
