"""The record of a lifecycle: what transcripts, checkpoints, a deployed agent and the report write and read.

Its fields are those of `types.Lifecycle`, `Episode` and `Turn`, by their names: readable by people, and exact enough to compute the
very same advantages from them again. As JSON lines, one line is one lifecycle with its pack. A group is a run of lines of one pack
and step whose siblings count upwards; the lines of a group stay together, since siblings are each other's baseline. Numbers are
exact: Python writes the shortest decimal that reads back as the same float. A task's `spec`, the environment's own dataclass, is
read back as a plain dict.
"""

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from cod_lightning.contexts.base import TextState
from cod_lightning.errors import DataError
from cod_lightning.files import readable, without_link
from cod_lightning.types import Episode, EpisodeStatus, Group, Lifecycle, Pack

SCHEMA = 4
"""Rises whenever a line of an earlier version would be misread."""


def dump(group: Group, *, step: int = 0) -> list[str]:
    """One line, without its newline, for each lifecycle; `step` says when it was played."""
    pack = plain(group.pack)
    for record, name in ((pack, "context"), *((task, "max_turns") for task in pack["tasks"])):
        if record[name] is None:
            del record[name]
    lines: list[str] = []
    for lifecycle in group.lifecycles:
        episodes = [episode_record(episode) for episode in lifecycle.episodes]
        record = {"schema": SCHEMA, "step": step, "pack": pack, "sibling": lifecycle.sibling, "episodes": episodes}
        lines.append(json.dumps(record, separators=(",", ":")))
    return lines


def see_kept(pack: Pack) -> Pack:
    """The pack. Raises where no record can hold it, such as for a `spec` of other than plain values, or half of a surrogate pair in
    its id."""
    json.dumps(plain(pack))
    pack.id.encode()
    return pack


class PlayedGroup(NamedTuple):
    """Sibling lifecycles that stand together, and when they were played."""

    step: int
    """Optimizer updates before."""
    group: Group


def load(lines: Iterable[str], *, source: str = "transcript") -> list[Group]:
    """The groups in these lines; empty lines do not count. Raises `DataError` naming `source` and the line."""
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    return [one.group for one in joined(load_line(line, f"{source}, line {number}") for number, line in numbered)]


def joined(lifecycles: Iterable[PlayedGroup]) -> Iterator[PlayedGroup]:
    """The groups of lifecycles that come one by one; a group ends where the pack, the step or the order of siblings changes."""
    latest: PlayedGroup | None = None
    for step, group in lifecycles:
        if latest is not None:
            before, more = latest.group.lifecycles, group.lifecycles
            same = (latest.step, latest.group.pack.id) == (step, group.pack.id)
            if same and before[-1].sibling < more[0].sibling:
                group = structs.replace(latest.group, lifecycles=(*before, *more))
            else:
                yield latest
        latest = PlayedGroup(step, group)
    if latest is not None:
        yield latest


def write(path: Path, groups: Sequence[Group], *, step: int = 0, append: bool = True) -> None:
    """Put the groups at the end of the file, behind a line that was torn, or in place of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with without_link(path).open("ab+" if append else "wb") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            file.write(b"" if file.read() == b"\n" else b"\n")
        file.writelines(f"{line}\n".encode() for group in groups for line in dump(group, step=step))


def read(path: Path) -> list[Group]:
    """All groups of the file. Raises `DataError` where it is missing or damaged."""
    try:
        with readable(path).open(encoding="utf-8") as file:
            return load(file, source=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}). Name a file of lifecycles/*.jsonl.") from error


def load_line(line: str, where: str) -> PlayedGroup:
    """The lifecycle of a line, alone in its group. Raises `DataError` naming `where`."""
    try:
        record = json.loads(line)
        if record["schema"] != SCHEMA:
            remedy = "Read it with the version that wrote it."
            raise DataError(f"{where}: schema {record['schema']}; this version reads schema {SCHEMA}. {remedy}")
        pack = msgspec.convert(record["pack"], Pack)
        episodes = tuple(map(read_episode, record["episodes"]))
        life = Lifecycle(pack_id=pack.id, sibling=int(record["sibling"]), episodes=episodes)
        return PlayedGroup(int(record["step"]), Group(pack=pack, lifecycles=(life,)))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{where} is damaged ({type(error).__name__}: {error}). "
            "A run that was killed leaves a torn last line; remove it together with the other lines of its pack."
        ) from error


def episode_record(episode: Episode) -> dict[str, Any]:
    """The episode as plain values, by the names of its fields; images in base64; without the parts of turns in text, without the
    state of a context whose text says it all, without both states where the episode was skipped, and without what only attempts
    have."""
    record: dict[str, Any] = msgspec.to_builtins(episode, enc_hook=plain)
    if episode.parent is None:
        del record["parent"], record["trained"]
    for turn in record["turns"]:
        if not turn["parts"]:
            del turn["parts"]
    for when in ("before", "after"):
        state = getattr(episode, f"state_{when}")
        derivable = type(state) is TextState and state.text == getattr(episode, f"context_{when}")
        if derivable or episode.status is EpisodeStatus.SKIPPED:
            del record[f"state_{when}"]
    return record


def read_episode(record: dict[str, Any]) -> Episode:
    """`episode_record` back again."""
    if record["status"] != EpisodeStatus.SKIPPED:
        states = {f"state_{when}": TextState(record[f"context_{when}"]) for when in ("before", "after")}
        record = states | record
    episode = msgspec.convert(record, Episode)
    for turn in episode.turns:
        if len(turn.behaviour_logprobs) != len(turn.action_ids):
            raise ValueError("action_ids and behaviour_logprobs differ in length")
    return episode


def plain(spec: object) -> Any:
    """Dataclasses as dicts, enums as values, tuples, sets and arrays as lists; plain values as they are."""
    if dataclasses.is_dataclass(spec) and not isinstance(spec, type):
        return {field.name: plain(getattr(spec, field.name)) for field in dataclasses.fields(spec)}
    if isinstance(spec, Enum):
        return plain(spec.value)
    if isinstance(spec, dict):
        return {str(plain(key)): plain(value) for key, value in spec.items()}
    if isinstance(spec, list | tuple):
        return [plain(item) for item in spec]
    if isinstance(spec, set | frozenset):
        return sorted(plain(item) for item in spec)
    return spec.tolist() if hasattr(spec, "tolist") else spec  # pyright: ignore[reportAttributeAccessIssue]  (NumPy)
