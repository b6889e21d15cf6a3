"""`evaluation_packs.parquet`: the outcomes behind `evaluation.json`, pack by pack, so that runs can be paired with each other.

A table of numbers made from lifecycles (`Outcomes.of`), not another record of them: the whole transcripts of quickstart's 17,408
test lifecycles would be 150 MB and read in 26 s, where this file is 0.1 MB and read in 2 s.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cod_lightning.errors import DataError, in_a_line
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.results import PlayedCondition
from cod_lightning.files import readable, write_whole

SCHEMA = pa.schema(
    [
        pa.field("suite", pa.string(), nullable=False),
        pa.field("condition", pa.string(), nullable=False),
        pa.field("checkpoint", pa.string()),
        pa.field("pack", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("success", pa.float64()),
        pa.field("reward", pa.float64()),
        pa.field("malformed", pa.float64()),
        pa.field("rule", pa.string()),
    ]
)
"""A row a solve episode; `checkpoint` is null for the policy without a checkpoint, for warm starts and references;
`success`, `reward` and `malformed` are null where an engine or a world failed. `rule` is the same where packs hide the same. Files
of earlier versions have neither of the last two."""
_compute: Any = pc  # its functions are made at run time, out of a type checker's sight
_KEY = ("suite", "condition", "checkpoint")
_MOST_ROWS = 10_000_000
_MOST = 1e18
"""Of a reward; means of more are no numbers."""


def write_packs(path: Path, played: Sequence[PlayedCondition]) -> None:
    """Write what was played to the file, in one replace; what it holds already and was not played again is kept."""
    latest = {(one.suite.name, one.control.name, one.checkpoint): one for one in played}
    tables = [_table(one) for one in latest.values()]
    if path.exists():
        kept = packs_table(path)
        keys = pa.array(["\0".join(map(str, key)) for key in latest], pa.string())
        tables.insert(0, kept.filter(_compute.invert(_compute.is_in(_keys(kept), value_set=keys))))
    content = io.BytesIO()
    pq.write_table(pa.concat_tables(tables), content, compression="zstd")
    write_whole(path, content.getvalue())


def read_packs(path: Path, suite: str, condition: str) -> Outcomes | None:
    """The outcomes of a condition of a suite, of the policy as it stood; None where it was not played.

    Raises `DataError` where the file is missing or foreign, or a pack has not every position once.
    """
    table = packs_table(path)
    wanted = _compute.equal(_keys(table), "\0".join((suite, condition, "None")))
    try:
        columns = table.filter(wanted).sort_by([("pack", "ascending"), ("position", "ascending")]).to_pydict()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} has texts that are none ({error}). Evaluate again.") from error
    if not columns["pack"]:
        return None
    if None in columns["pack"] or None in columns["position"]:
        raise DataError(f"{path} has rows of {suite}, {condition}, without a pack or a position. Evaluate again.")
    num_rows, num_positions = len(columns["pack"]), 1 + max(columns["position"])
    pack_ids = tuple(columns["pack"][:: max(1, num_positions)])
    if num_rows != num_positions * len(set(pack_ids)) or columns["position"] != [
        n % num_positions for n in range(num_rows)
    ]:
        raise DataError(f"{path} has packs of {suite}, {condition}, without every position once. Evaluate again.")
    success, rewards, malformed = (
        np.array([np.nan if value is None else value for value in columns[name]]).reshape(-1, num_positions)
        for name in ("success", "reward", "malformed")
    )
    if any((np.abs(one) > _MOST).any() for one in (success, rewards, malformed)):
        raise DataError(f"{path} has outcomes of {suite}, {condition}, above {_MOST:g}. Evaluate again.")
    rules = columns["rule"][:: max(1, num_positions)]
    return Outcomes(
        rewards=rewards,
        success=success,
        pack_ids=pack_ids,
        rules=() if None in rules else tuple(rules),
        malformed=None if np.isnan(malformed).all() else malformed,
    )


def _table(one: PlayedCondition) -> pa.Table:
    outcomes = one.outcomes
    num_packs, num_positions = outcomes.success.shape
    total = num_packs * num_positions
    columns = [
        [one.suite.name] * total,
        [one.control.name] * total,
        [one.checkpoint] * total,
        np.repeat(np.array(outcomes.pack_ids, dtype=object), num_positions),
        np.tile(np.arange(num_positions, dtype=np.int32), num_packs),
        pa.array(outcomes.success.ravel(), pa.float64(), from_pandas=True),
        pa.array(outcomes.rewards.ravel(), pa.float64(), from_pandas=True),
        [None] * total if outcomes.malformed is None else pa.array(outcomes.malformed.ravel(), from_pandas=True),
        np.repeat(np.array(outcomes.rules, dtype=object), num_positions) if outcomes.rules else [None] * total,
    ]
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _keys(table: pa.Table) -> pa.ChunkedArray:
    """Suite, condition and checkpoint of each row, as one string."""
    columns = [_compute.fill_null(table[name], "None") for name in _KEY]
    return _compute.binary_join_element_wise(*columns, "\0")


def packs_table(path: Path) -> pa.Table:
    """All rows. Raises `DataError` where the file is none that outcomes can be added to."""
    try:
        if (rows := pq.read_metadata(readable(path)).num_rows) > _MOST_ROWS:
            raise pa.ArrowInvalid(f"{rows:,} rows, which may be few bytes on disk alone")
        return pq.read_table(path, schema=SCHEMA)
    except (OSError, pa.ArrowException) as error:
        said = f"is no evaluation_packs.parquet of this project ({in_a_line(error)})"
        raise DataError(f"{path} {said}. Evaluate again.") from error
