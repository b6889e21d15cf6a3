"""Lifecycles as a Parquet file: one row for each episode, for pandas, DuckDB, `datasets` and the like.

It holds what `transcript.py` writes except the specs of tasks and images, flat where it can be. A file appears at its path when
it is complete: until then, or if its writer is killed, an earlier one stays as it was.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from cod_lightning.files import without_link
from cod_lightning.rollout.transcript import episode_record
from cod_lightning.types import Group

_TURN = pa.struct(
    [
        ("observation", pa.string()),
        ("response", pa.string()),
        ("stop", pa.string()),
        ("policy_version", pa.int32()),
        ("extends", pa.bool_()),
        ("prompt_digest", pa.int64()),
        ("new_ids", pa.list_(pa.int32())),
        ("action_ids", pa.list_(pa.int32())),
        ("behaviour_logprobs", pa.list_(pa.float64())),
    ]
)

_ENTRY = pa.struct([("kind", pa.string()), ("key", pa.string()), ("text", pa.string())])

_COLUMNS: tuple[tuple[str, pa.DataType, str], ...] = (
    ("run", pa.string(), "name of the run's folder"),
    ("label", pa.string(), "which rollout: predict, validation, train, test_SUITE_CONDITION"),
    ("step", pa.int64(), "optimizer updates before it was played"),
    ("pack_id", pa.string(), "identity of the pack; the same in every run"),
    ("split", pa.string(), "share of the worlds: train, validation, test"),
    ("world_seed", pa.int64(), "fixes what the pack's tasks share"),
    ("sibling", pa.int32(), "which of the pack's lifecycles"),
    ("kind", pa.string(), "solve (a task) or update (a rewrite of the context)"),
    ("position", pa.int32(), "0-based index of the task; update n follows solve n"),
    ("task_id", pa.string(), "the task at this position, of an update too"),
    ("status", pa.string(), "completed, malformed, truncated; without reward: failed, skipped"),
    ("reward", pa.float64(), "null where it is missing, which is not 0"),
    ("success", pa.bool_(), "solve: solved; update: the context parsed; null where the reward is missing"),
    ("num_turns", pa.int32(), "engine calls"),
    ("num_action_tokens", pa.int64(), "tokens the policy sampled"),
    ("context_before", pa.string(), "the context the episode began with"),
    ("context_after", pa.string(), "the context it left"),
    ("state_before", pa.string(), "the same as the record of its mechanism, in JSON; null where the text says all"),
    ("state_after", pa.string(), "the record of the context it left; null where the text says all"),
    ("feedback", pa.string(), "the world's words after the task, or why a context did not parse"),
    ("error", pa.string(), "what was raised, for failed"),
    ("repeat", pa.bool_(), "solve: whether an earlier task of the pack asked for the same"),
    ("reward_hidden", pa.bool_(), "solve: whether the environment keeps reward and success from the policy"),
    ("paid", pa.bool_(), "whether its program paid it for what came of it: its return is its own reward"),
    ("policy_version", pa.int32(), "the oldest among its turns: weight syncs seen; -1 scripted; null without turns"),
    ("parts", pa.map_(pa.string(), pa.float64()), "parts of the reward by name; null where it has none"),
    (
        "entries",
        pa.list_(_ENTRY),
        "what it had to do with the context's entries; null where that is not known",
    ),
    (
        "compared_with",
        pa.string(),
        "name that the program gave to what it is compared with; empty: its pack, kind and position",
    ),
    ("turns", pa.list_(_TURN), "texts, token ids and log-probs (nats), as in the JSON lines"),
)

SCHEMA = pa.schema(
    [pa.field(name, kind, metadata={"description": what}) for name, kind, what in _COLUMNS],
    metadata={"cod_lightning.schema": "1"},
)
"""Types and descriptions of the columns; the file carries them."""

_STATES = ("state_before", "state_after")


class TableWriter:
    """Writes episodes as row groups, so that memory holds one of them, and puts the file in place at the end.

    Args:
        path: Where the file will be.
        run: Value of the column `run`.
        row_group: Episodes of a row group, about; whole groups of lifecycles are never split between two.
    """

    def __init__(self, path: Path, run: str, row_group: int = 2048) -> None:
        self.path, self.run, self.row_group = path, run, row_group
        self.draft = path.with_name(f".{path.name}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._rows: list[dict[str, Any]] = []
        self._file = pq.ParquetWriter(without_link(self.draft), SCHEMA, compression="zstd")

    def add(self, label: str, step: int, group: Group) -> None:
        """All episodes of the group."""
        origin = {"run": self.run, "label": label, "step": step}
        self._rows += [origin | row for row in episode_rows(group)]
        if len(self._rows) >= self.row_group:
            self._flush()

    def finish(self) -> None:
        """Put the file in place of an earlier one."""
        self._flush()
        self._file.close()
        os.replace(self.draft, self.path)

    def discard(self) -> None:
        """Leave an earlier file as it was."""
        self._file.close()
        self.draft.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(_table(self._rows))
        self._rows = []


def episode_rows(group: Group) -> Iterator[dict[str, Any]]:
    """One row for each episode; all columns but those that say where it was played."""
    pack = {"pack_id": group.pack.id, "split": group.pack.split.value, "world_seed": group.pack.world_seed}
    for lifecycle in group.lifecycles:
        for episode in lifecycle.episodes:
            record = episode_record(episode)
            yield {
                **pack,
                **record,
                **{name: json.dumps(record[name]) for name in _STATES if name in record},
                "entries": None
                if episode.entries is None
                else msgspec.to_builtins(list(map(structs.asdict, episode.entries))),
                "parts": episode.parts or None,
                "sibling": lifecycle.sibling,
                "task_id": group.pack.tasks[episode.position].id,
                "num_turns": len(episode.turns),
                "num_action_tokens": episode.num_action_tokens,
                "policy_version": min((turn.policy_version for turn in episode.turns), default=None),
            }


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows, schema=SCHEMA)
    except UnicodeEncodeError:
        return pa.Table.from_pylist([_encodable(row) for row in rows], schema=SCHEMA)


def _encodable(value: Any) -> Any:
    """The value with `?` for what UTF-8 cannot hold (half of a surrogate pair, say of a file name in a world)."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value
