"""Decision points prepared from real dialogues: a JsonL file, checked line by line."""

import hashlib
import json
import logging
import random
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cod_lightning.envs.base import Unchanging, split_of_text
from cod_lightning.envs.learn2ask.clinic import Label
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split

_KEY = "data.env.data_path"
_GUIDE = "docs/guides/learn2ask_data.md"
_MOST_LINE_BYTES = 1_000_000
_MOST_LETTERS = 20_000
_MOST_TURNS = 1000
"""Both of one dialogue."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTask:
    """One decision point: what has been said, whether to go on, and what is still missing."""

    id: str
    session: str
    diagnosis: str
    """Empty where it is not given."""
    turns: tuple[tuple[str, str], ...]
    """(user or assistant, text); the last one is the user's."""
    label: Label
    missing: tuple[str, ...]
    """Empty exactly where the label is stop."""


class Records(Unchanging):
    """All decision points of a file, by split; immutable, so that a copy of a world shares it."""

    def __init__(
        self,
        records: tuple[RecordTask, ...],
        split_by: Literal["session", "diagnosis"],
        digest: str,
        refused: tuple[str, ...],
    ) -> None:
        self.split_by, self.digest, self.refused = split_by, digest, refused
        """Of the file's bytes; and why each refused line was refused."""
        self.all = records
        self.by_split: dict[Split, tuple[RecordTask, ...]] = {
            split: tuple(
                r for r in records if split_of_text(r.session if split_by == "session" else r.diagnosis) is split
            )
            for split in Split
        }

    def draw(self, split: Split, world_seed: int, num_tasks: int) -> list[RecordTask]:
        """N decision points of the split, none twice until all have been used; a longer list begins with the shorter.

        Raises `ConfigError` where the split has none.
        """
        pool = self.by_split[split]
        if not pool:
            value = f"a file of {len(self.all)} decision points"
            expected = f"one with a {self.split_by} that falls to the split {split}"
            remedy = "Prepare more dialogues, or set data.env.split_by to session."
            raise ConfigError(_KEY, value, expected, remedy)
        rng = random.Random(world_seed)
        chosen: list[RecordTask] = []
        used: set[int] = set()
        while len(chosen) < num_tasks:
            number = rng.randrange(len(pool))
            while number in used:
                number = rng.randrange(len(pool)) if 2 * len(used) < len(pool) else (number + 1) % len(pool)
            chosen.append(pool[number])
            used.add(number)
            if len(used) == len(pool):
                used.clear()
        return chosen

    def letters(self) -> frozenset[str]:
        """Every letter of any dialogue, and those that can be printed."""
        return frozenset(string.printable).union(*(text for record in self.all for _, text in record.turns))


class _BadLine(Exception):
    """Names the field and what was expected of it."""


def load_records(path: str, split_by: Literal["session", "diagnosis"], skip_bad_lines: bool) -> Records:
    """Read and check a whole file.

    Raises:
        ConfigError: Where the path is no file, no line is usable, or (unless `skip_bad_lines`) at the first bad line, with its
            number, the field and the remedy.
    """
    if not path or not Path(path).is_file():
        remedy = f"Prepare one, see {_GUIDE}, or leave it out for the clinic."
        raise ConfigError(_KEY, path or "empty", "a JsonL file of decision points", remedy)
    records: dict[str, RecordTask] = {}
    refused: list[str] = []
    digest, blank = hashlib.sha256(), 0
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            digest.update(line)
            if not line.strip():
                blank += 1
                continue
            try:
                record = record_of(line, split_by)
                if record.id in records:
                    raise _BadLine(f"field cid to be used once; {record.id[:40]!r} is there twice")
            except _BadLine as bad:
                if not skip_bad_lines:
                    remedy = f"Correct or delete the line, see {_GUIDE}, or set data.env.skip_bad_lines."
                    raise ConfigError(_KEY, f"{path}, line {number}", str(bad), remedy) from None
                refused.append(f"line {number}: {bad}")
                continue
            records[record.id] = record
    if not records:
        first = f"; the first: {refused[0]}" if refused else ""
        expected = f"a usable line; {len(refused)} were bad and {blank} blank{first}"
        raise ConfigError(_KEY, path, expected, f"Prepare the file as {_GUIDE} says.")
    if refused:
        _LOG.warning("%s: %d lines are left out, %d used; the first: %s", path, len(refused), len(records), refused[0])
    return Records(tuple(records.values()), split_by, digest.hexdigest(), tuple(refused))


def record_of(line: bytes, split_by: str) -> RecordTask:
    """One line as a decision point; raises `_BadLine`."""
    if len(line) > _MOST_LINE_BYTES:
        raise _BadLine(f"a line of at most {_MOST_LINE_BYTES} bytes, not {len(line)}")
    try:
        entry = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _BadLine("UTF-8 text") from None
    except (ValueError, RecursionError):
        raise _BadLine("a complete JSON object (this line is no JSON; was it cut off?)") from None
    if not isinstance(entry, dict):
        raise _BadLine("a JSON object")
    cid = _text(entry, "cid")
    label = entry.get("decision_truth")
    if label not in ("stop", "continue"):
        raise _BadLine("field decision_truth to be stop or continue")
    diagnosis = _text(entry, "diagn") if split_by == "diagnosis" or entry.get("diagn") not in (None, "") else ""
    session = _text(entry, "session_id") if entry.get("session_id") is not None else cid.rpartition("_")[0] or cid
    return RecordTask(
        id=cid,
        session=session,
        diagnosis=diagnosis,
        turns=_turns(entry.get("messages")),
        label="stop" if label == "stop" else "continue",
        missing=_missing(entry.get("info_truth")) if label == "continue" else (),
    )


def _text(entry: dict[str, Any], field: str) -> str:
    value = entry.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not (clean := _clean(value, field)):
        raise _BadLine(f"field {field} to be a text or an integer, not empty")
    return clean


def _clean(text: str, field: str) -> str:
    """White space collapsed, so that no utterance can pass for two, and invisible letters dropped; refuses lone surrogates."""
    clean = " ".join(text.split())
    if clean.isprintable():
        return clean
    if any(0xD800 <= ord(letter) < 0xE000 for letter in clean):
        raise _BadLine(f"field {field} without lone surrogates")
    return "".join(filter(str.isprintable, clean)).strip()


def _turns(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list) or not value:
        raise _BadLine("field messages to be a list of {role, content}, not empty")
    if len(value) > _MOST_TURNS:
        raise _BadLine(f"field messages to hold at most {_MOST_TURNS} entries, not {len(value)}")
    turns: list[tuple[str, str]] = []
    for n, entry in enumerate(value):
        role = entry.get("role") if isinstance(entry, dict) else None
        if role not in ("user", "assistant"):
            raise _BadLine(f"field messages[{n}].role to be user or assistant")
        content = entry.get("content")
        if not isinstance(content, str) or not (clean := _clean(content, f"messages[{n}].content")):
            raise _BadLine(f"field messages[{n}].content to be a text, not empty")
        turns.append((role, clean))
    if turns[-1][0] != "user":
        raise _BadLine(f"field messages[{len(turns) - 1}].role (the last one) to be user")
    if (letters := sum(len(text) for _, text in turns)) > _MOST_LETTERS:
        raise _BadLine(f"field messages to hold at most {_MOST_LETTERS} letters, not {letters}")
    return tuple(turns)


def _missing(value: object) -> tuple[str, ...]:
    parts = value.split(", ") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise _BadLine("field info_truth to be a text of items joined by comma and space, or a list of texts")
    items = tuple(clean for part in parts if (clean := _clean(part, "info_truth")))
    if not items:
        raise _BadLine("field info_truth to name an item, since decision_truth is continue")
    return items
