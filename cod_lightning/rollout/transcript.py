"""Lifecycles as JSON lines: readable by people, exact enough to compute the very same advantages from them again.

One line is one lifecycle with its pack. A group is a run of lines of one pack and step whose siblings count upwards;
the lines of a group stay together, since siblings are each other's baseline. Numbers are exact: Python writes the
shortest decimal that reads back as the same float. A task's `spec`, the environment's own dataclass, is read back as a
plain dict.
"""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from cod_lightning.contexts.base import TextState
from cod_lightning.errors import DataError
from cod_lightning.types import (
    Attempt,
    AttemptKind,
    Episode,
    EpisodeStatus,
    Group,
    Lifecycle,
    Pack,
    Split,
    Task,
    Turn,
)
from cod_lightning.whole_file import without_link

SCHEMA = 1
"""Rises whenever a line of an earlier version would be misread."""


def dump(group: Group, *, step: int = 0) -> list[str]:
    """One line, without its newline, for each lifecycle; `step` says when it was played."""
    pack = {
        "id": group.pack.id,
        "split": group.pack.split.value,
        "world_seed": group.pack.world_seed,
        "tasks": [
            {"id": task.id, "seed": task.seed, "spec": plain(task.spec), "repeat": task.repeat}
            | ({} if task.max_turns is None else {"max_turns": task.max_turns})
            for task in group.pack.tasks
        ],
    } | ({} if group.pack.context is None else {"context": group.pack.context})
    lines: list[str] = []
    for lifecycle in group.lifecycles:
        episodes = [episode_record(episode) for episode in lifecycle.episodes]
        record = {"schema": SCHEMA, "step": step, "pack": pack, "sibling": lifecycle.sibling, "episodes": episodes}
        if lifecycle.attempts:
            record["attempts"] = [
                {"kind": one.kind.value, "episode": episode_record(one.episode)} for one in lifecycle.attempts
            ]
        lines.append(json.dumps(record, separators=(",", ":")))
    return lines


def load(lines: Iterable[str], *, source: str = "transcript") -> list[Group]:
    """The groups in these lines; empty lines do not count. Raises `DataError` naming `source` and the line."""
    groups: list[Group] = []
    latest: tuple[int, str, int] | None = None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        step, pack, lifecycle = _read(line, f"{source}, line {number}")
        if latest is not None and latest[:2] == (step, pack.id) and latest[2] < lifecycle.sibling:
            groups[-1] = structs.replace(groups[-1], lifecycles=(*groups[-1].lifecycles, lifecycle))
        else:
            groups.append(Group(pack=pack, lifecycles=(lifecycle,)))
        latest = (step, pack.id, lifecycle.sibling)
    return groups


def write(path: Path, groups: Sequence[Group], *, step: int = 0, append: bool = True) -> None:
    """Put the groups at the end of the file, or in place of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with without_link(path).open("a" if append else "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for group in groups for line in dump(group, step=step))


def read(path: Path) -> list[Group]:
    """All groups of the file. Raises `DataError` where it is missing or damaged."""
    try:
        with path.open(encoding="utf-8") as file:
            return load(file, source=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}). Name a file of lifecycles/*.jsonl.") from error


def _read(line: str, where: str) -> tuple[int, Pack, Lifecycle]:
    try:
        record = json.loads(line)
        if record["schema"] != SCHEMA:
            remedy = "Read it with the version that wrote it."
            raise DataError(f"{where}: schema {record['schema']}; this version reads schema {SCHEMA}. {remedy}")
        of_pack = record["pack"]
        tasks = tuple(Task(**task) for task in of_pack["tasks"])
        pack = Pack(**of_pack | {"split": Split(of_pack["split"]), "tasks": tasks})
        episodes = tuple(read_episode(episode) for episode in record["episodes"])
        attempts = tuple(
            Attempt(kind=AttemptKind(attempt["kind"]), episode=read_episode(attempt["episode"]))
            for attempt in record.get("attempts", ())
        )
        life = Lifecycle(pack_id=pack.id, sibling=record["sibling"], episodes=episodes, attempts=attempts)
        return record["step"], pack, life
    except (ValueError, KeyError, TypeError, AssertionError, OverflowError, AttributeError) as error:
        raise DataError(
            f"{where} is damaged ({type(error).__name__}: {error}). "
            "A run that was killed leaves a torn last line; remove it together with the other lines of its pack."
        ) from error


def episode_record(episode: Episode) -> dict[str, Any]:
    """The episode as plain values; parts of the reward, events of entries and what it is compared with only where there are any,
    and states of contexts only where they say more than the context's text."""
    extra: dict[str, Any] = {"parts": episode.parts} if episode.parts else {}
    if episode.compared_with:
        extra["compared_with"] = episode.compared_with
    if episode.entries is not None:
        extra["entries"] = msgspec.to_builtins(episode.entries)
    for name, state, text in (
        ("state_before", episode.state_before, episode.context_before),
        ("state_after", episode.state_after, episode.context_after),
    ):
        derivable = type(state) is TextState and state.text == text
        if not derivable and episode.status is not EpisodeStatus.SKIPPED:
            extra[name] = msgspec.to_builtins(state)
    return extra | {
        "kind": episode.kind.value,
        "position": episode.position,
        "status": episode.status.value,
        "reward": episode.reward,
        "success": episode.success,
        "context_before": episode.context_before,
        "context_after": episode.context_after,
        "feedback": episode.feedback,
        "error": episode.error,
        "repeat": episode.repeat,
        "reward_hidden": episode.reward_hidden,
        "turns": [_turn_record(turn) for turn in episode.turns],
    }


def _turn_record(turn: Turn) -> dict[str, Any]:
    return {
        "observation": turn.observation,
        "response": turn.response,
        "stop": turn.stop.value,
        "policy_version": turn.policy_version,
        "extends": turn.extends,
        "prompt_digest": turn.prompt_digest,
        "new_ids": turn.new_ids,
        "action_ids": turn.action_ids,
        "behaviour_logprobs": turn.behaviour_logprobs,
    }


def read_episode(record: dict[str, Any]) -> Episode:
    """`episode_record` back again."""
    if record["status"] != EpisodeStatus.SKIPPED:
        states = {f"state_{when}": TextState(record[f"context_{when}"]) for when in ("before", "after")}
        record = states | record
    episode = msgspec.convert(record, Episode)
    for turn in episode.turns:
        assert len(turn.behaviour_logprobs) == len(turn.action_ids), (
            "action_ids and behaviour_logprobs differ in length"
        )
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
