"""`evaluation_packs.parquet` gives back what was played, with what is missing kept missing."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cod_lightning.errors import DataError
from cod_lightning.evaluation.packs_file import read_packs, write_packs
from cod_lightning.evaluation.suite import Suite
from tests.cases import each
from tests.played import play

FILE = "evaluation_packs.parquet"


def with_success(played, success, **changes):
    outcomes = dataclasses.replace(played.outcomes, success=success)
    return dataclasses.replace(played, outcomes=outcomes, **changes)


def test_outcomes_come_back_by_pack_and_position_and_a_missing_success_stays_missing(tmp_path: Path) -> None:
    played = play(Suite(name="heldout"))
    success = played[0].outcomes.success.copy()
    success[3, 2] = np.nan
    played[0] = with_success(played[0], success)
    write_packs(tmp_path / FILE, played)
    for one in played:
        found = read_packs(tmp_path / FILE, "heldout", one.control.name)
        assert found is not None
        same = found.rows(one.outcomes.pack_ids)
        np.testing.assert_array_equal(same.success, one.outcomes.success)
        np.testing.assert_array_equal(same.rewards, one.outcomes.rewards)


def test_what_is_played_again_replaces_itself_alone(tmp_path: Path) -> None:
    suite = Suite(name="heldout")
    played = play(suite)
    write_packs(tmp_path / FILE, [*played, *play(Suite(name="other"))])
    again = with_success(played[0], np.ones_like(played[0].outcomes.success))
    elsewhere = with_success(played[0], np.zeros_like(played[0].outcomes.success), checkpoint="a.ckpt")
    write_packs(tmp_path / FILE, [again, elsewhere])
    trained, other = (read_packs(tmp_path / FILE, name, "trained") for name in ("heldout", "other"))
    assert trained is not None
    assert other is not None
    assert trained.success.min() == 1, "the policy as it stood, not the checkpoint"
    assert other.success.min() == 0
    assert read_packs(tmp_path / FILE, "heldout", "blanked_context") is not None


def test_a_condition_that_was_not_played_is_none_and_a_foreign_file_is_named(tmp_path: Path) -> None:
    write_packs(tmp_path / FILE, play(Suite(name="heldout"))[:1])
    assert read_packs(tmp_path / FILE, "heldout", "no_context") is None
    (tmp_path / "no.parquet").write_text("no")
    with pytest.raises(DataError, match=r"no\.parquet is no evaluation_packs\.parquet"):
        read_packs(tmp_path / "no.parquet", "heldout", "trained")


def test_rules_and_malformed_answers_come_back_and_an_older_file_does_without(tmp_path: Path) -> None:
    one = play(Suite(name="heldout"))[0]
    rules = tuple(str(int(pack) % 7) for pack in one.outcomes.pack_ids)
    wrong = (np.random.default_rng(0).random(one.outcomes.success.shape) < 0.2).astype(float)
    outcomes = dataclasses.replace(one.outcomes, rules=rules, malformed=wrong)
    write_packs(tmp_path / FILE, [dataclasses.replace(one, outcomes=outcomes)])
    found = read_packs(tmp_path / FILE, "heldout", "trained")
    assert found is not None
    assert dict(zip(found.pack_ids, found.rules, strict=True)) == dict(zip(outcomes.pack_ids, rules, strict=True))
    assert found.malformed is not None
    np.testing.assert_array_equal(found.malformed, wrong[np.argsort(outcomes.pack_ids)])
    older = pq.read_table(tmp_path / FILE).drop_columns(["rule", "malformed"])
    pq.write_table(older, tmp_path / FILE)
    without = read_packs(tmp_path / FILE, "heldout", "trained")
    assert without is not None
    assert (without.rules, without.malformed, without.num_rules) == ((), None, without.num_packs)
    write_packs(tmp_path / FILE, play(Suite(name="other"))[:1])
    assert read_packs(tmp_path / FILE, "heldout", "trained") is not None


def not_text(table: pa.Table) -> pa.Array:
    """Names of packs that are no UTF-8."""
    return pa.Array.from_buffers(pa.string(), len(table), pa.array([b"\xff"] * len(table), pa.binary()).buffers())


@each(
    ("column", "values", "said"),
    [
        ("pack", not_text, "has texts that are none"),
        ("position", lambda table: pa.array([None] * len(table), pa.int32()), "without a pack or a position"),
        ("reward", lambda table: pa.array([1e308] * len(table), pa.float64()), r"above 1e\+18"),
        ("success", lambda table: pa.array([float("inf")] * len(table), pa.float64()), r"above 1e\+18"),
    ],
)
def test_what_no_evaluation_writes_is_refused_in_one_line(tmp_path: Path, column: str, values: Any, said: str) -> None:
    write_packs(tmp_path / FILE, play(Suite(name="heldout"))[:1])
    table = pq.read_table(tmp_path / FILE)
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, values(table)), tmp_path / FILE)
    with pytest.raises(DataError, match=said) as refused:
        read_packs(tmp_path / FILE, "heldout", "trained")
    assert "\n" not in str(refused.value)


def test_a_file_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    many = pa.table({"reward": pa.nulls(10_000_001, pa.float64())})
    pq.write_table(many, tmp_path / FILE)
    with pytest.raises(DataError, match="10,000,001 rows"):
        read_packs(tmp_path / FILE, "heldout", "trained")
