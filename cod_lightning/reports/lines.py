"""A file of lifecycles read leniently: what can be read is read, what cannot is counted, with the reason.

`rollout/transcript.py` reads strictly, for replay; a report has to open what a killed run or another version left behind.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from cod_lightning.errors import DataError
from cod_lightning.rollout import transcript
from cod_lightning.rollout.transcript import PlayedGroup

_HEAD = re.compile(rb'\{"schema":(\d+),"step":(\d+),"pack":\{"id":("(?:[^"\\]|\\.)*")')
"""How a line begins, as `transcript.dump` writes it."""


@dataclass(slots=True)
class LifecycleFile:
    """One `lifecycles/*.jsonl`; `left_out` is complete once `groups` has come to its end."""

    path: Path
    left_out: Counter[str] = field(default_factory=Counter)
    """Lines that could not be read, by reason."""
    num_unread: int = 0
    """Lines that `spread` passed over."""

    @property
    def label(self) -> str:
        """What was played, as in `train`, `validation` or `test_SUITE_CONDITION`."""
        return self.path.name.removesuffix(".jsonl")

    def spread(self, most_bytes: int) -> Iterator[PlayedGroup]:
        """All groups of a file that is no larger; else of a larger one as many whole groups as that, taken evenly."""
        size, self.num_unread = self.path.stat().st_size, 0
        if size <= most_bytes:
            yield from self.groups()
            return
        share = most_bytes / size
        for place, (begin, end, num_lines) in enumerate(self._runs()):
            if math.floor(place * share) != math.floor((place - 1) * share):
                yield from self.groups(max(0, begin - 1), end)
            else:
                self.num_unread += num_lines

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """Begin, end and number of the lines that stand together for one step and pack: a group, or the same one played again."""
        begin, end, num_lines, latest = 0, 0, 0, None
        with self.path.open("rb") as file:
            for line in file:
                head = _HEAD.match(line)
                own = None if head is None else head.groups()
                if num_lines and own != latest:
                    yield begin, end, num_lines
                    begin, num_lines = end, 0
                latest, end, num_lines = own, end + len(line), num_lines + bool(line.strip())
        if num_lines:
            yield begin, end, num_lines

    def groups(self, begin: int = 0, end: int | None = None) -> Iterator[PlayedGroup]:
        """Groups in the order of the file; a group ends where the pack, the step or the order of siblings changes.

        With `begin` or `end`, those of the whole lines between these bytes.
        """
        with self.path.open("rb") as file:
            if begin:
                file.seek(begin)
                file.readline()
            within = iter(file.readline, b"") if end is None else _up_to(file, end)
            found = (self._read(line) for line in within if line.strip())
            yield from transcript.joined(one for one in found if one is not None)

    def _read(self, line: bytes) -> PlayedGroup | None:
        try:
            text, head = line.decode("utf-8"), _HEAD.match(line)
            record: Any = json.loads(text) if head is None else {"schema": int(head[1]), "step": head[2]}
            schema = record["schema"]
            if schema != transcript.SCHEMA:
                self.left_out[f"schema {schema!r:.20}, not {transcript.SCHEMA}"] += 1
                return None
            step, group = transcript.load_line(text, "")
            return PlayedGroup(int(step), group)
        except (DataError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            self.left_out["torn or damaged"] += 1
            return None


def _up_to(file: BinaryIO, end: int) -> Iterator[bytes]:
    while file.tell() < end and (line := file.readline()):
        yield line
