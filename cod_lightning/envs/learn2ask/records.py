"""Decision points prepared from real dialogues: a JsonL file, checked line by line."""

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from cod_lightning.envs.base import Unchanging, split_of_text
from cod_lightning.envs.dataset.records import objects
from cod_lightning.envs.learn2ask.clinic import Label
from cod_lightning.errors import ConfigError, in_a_line
from cod_lightning.types import Split

_KEY = "data.env.data_path"
_GUIDE = "docs/guides/learn2ask_data.md"
_MOST_LETTERS = 20_000
"""Of one dialogue."""


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


class _Said(Struct):
    role: Literal["user", "assistant"]
    content: str


class _Line(Struct):
    """A line of the file, as the guide documents it."""

    cid: str | int
    messages: Annotated[list[_Said], Meta(min_length=1, max_length=1000)]
    decision_truth: Label
    info_truth: str | list[str] | None = None
    session_id: str | int | None = None
    diagn: str | int | None = None


class Records(Unchanging):
    """All decision points of a file, by split; immutable, so that a copy of a world shares it."""

    def __init__(self, records: tuple[RecordTask, ...], split_by: Literal["session", "diagnosis"], digest: str) -> None:
        self.split_by, self.digest = split_by, digest
        """Of the file's bytes."""
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


def load_records(path: str, split_by: Literal["session", "diagnosis"]) -> Records:
    """Read and check a whole file. Raises `ConfigError` at the first bad line, with its number, the field and the remedy."""
    records: dict[str, RecordTask] = {}
    for number, entry in enumerate(objects(Path(path), _KEY), start=1):
        if entry is None:
            continue
        try:
            record = _record(msgspec.convert(entry, _Line), split_by)
            if record.id in records:
                raise ValueError(f"cid {record.id[:40]!r} is there twice")
        except ValueError as error:
            expected = f"a decision point ({in_a_line(error, 200)})"
            raise ConfigError(
                _KEY, f"{path}:{number}", expected, f"Correct or delete the line, see {_GUIDE}."
            ) from None
        records[record.id] = record
    if not records:
        raise ConfigError(_KEY, path, "a file with a decision point", f"Prepare it as {_GUIDE} says.")
    return Records(tuple(records.values()), split_by, hashlib.sha256(Path(path).read_bytes()).hexdigest())


def _record(line: _Line, split_by: str) -> RecordTask:
    """The decision point of a line; raises `ValueError` where it breaks a rule that types do not say."""
    cid = _clean(str(line.cid), "cid")
    turns = tuple((said.role, _clean(said.content, f"messages[{n}].content")) for n, said in enumerate(line.messages))
    if turns[-1][0] != "user":
        raise ValueError("the last one of messages is not the user's")
    if (letters := sum(len(text) for _, text in turns)) > _MOST_LETTERS:
        raise ValueError(f"messages hold {letters} letters, more than {_MOST_LETTERS}")
    if line.diagn in (None, "") and split_by == "diagnosis":
        raise ValueError("diagn is missing")
    missing: list[str] = []
    if line.decision_truth == "continue":
        missing = line.info_truth.split(", ") if isinstance(line.info_truth, str) else line.info_truth or []
        if not any(map(str.strip, missing)):
            raise ValueError("info_truth names no item, though decision_truth is continue")
    return RecordTask(
        id=cid,
        session=_clean(str(line.session_id), "session_id")
        if line.session_id is not None
        else cid.rpartition("_")[0] or cid,
        diagnosis=_clean(str(line.diagn), "diagn") if line.diagn not in (None, "") else "",
        turns=turns,
        label=line.decision_truth,
        missing=tuple(_clean(item, "info_truth") for item in missing if item.strip()),
    )


def _clean(text: str, field: str) -> str:
    """White space collapsed, so that no utterance can pass for two, and invisible letters dropped. Raises `ValueError` for lone
    surrogates, and where nothing remains."""
    clean = " ".join(text.split())
    if any(0xD800 <= ord(letter) < 0xE000 for letter in clean):
        raise ValueError(f"{field} has lone surrogates")
    clean = "".join(filter(str.isprintable, clean)).strip()
    if not clean:
        raise ValueError(f"{field} is empty")
    return clean
