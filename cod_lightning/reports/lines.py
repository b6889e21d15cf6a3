"""A file of lifecycles read leniently: what can be read is read, what cannot is counted, with the reason.

`rollout/transcript.py` reads strictly, for replay; a report has to open what a killed run or another version left behind.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from cod_lightning.errors import DataError
from cod_lightning.rollout import transcript
from cod_lightning.rollout.transcript import PlayedGroup


@dataclass(slots=True)
class LifecycleFile:
    """One `lifecycles/*.jsonl`; `left_out` is complete once `groups` has come to its end."""

    path: Path
    left_out: Counter[str] = field(default_factory=Counter)
    """Lines that were not read, by reason."""

    @property
    def label(self) -> str:
        """What was played, as in `train`, `validation` or `test_SUITE_CONDITION`."""
        return self.path.name.removesuffix(".jsonl")

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
            text = line.decode("utf-8")
            record: Any = json.loads(text)
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
