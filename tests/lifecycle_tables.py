"""Lifecycles read back from the Parquet file that holds them."""

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pyarrow.parquet as pq

from cod_lightning.rollout.transcript import read_episode
from cod_lightning.types import Episode, Lifecycle

_STATES = ("state_before", "state_after")
_PLAIN = [name for name in Episode.__struct_fields__ if name not in (*_STATES, "parts", "entries")]


def read_lifecycles(path: Path) -> Iterator[Lifecycle]:
    """The lifecycles of the file, in its order."""
    rows = pq.ParquetFile(path).read().to_pylist()
    for key, of_one in groupby(rows, lambda row: [row[n] for n in ("run", "label", "step", "pack_id", "sibling")]):
        yield Lifecycle(pack_id=key[3], sibling=key[4], episodes=tuple(map(_episode, of_one)))


def _episode(row) -> Episode:
    extra = {name: json.loads(row[name]) for name in _STATES if row[name] is not None}
    entries = row["entries"] and [list(event.values()) for event in row["entries"]]
    parts = dict(row["parts"] or ())
    return read_episode({name: row[name] for name in _PLAIN} | extra | {"parts": parts, "entries": entries})
