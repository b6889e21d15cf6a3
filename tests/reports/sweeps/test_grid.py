"""Two choices crossed: each row against the first, within a column."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cod_lightning.reports.sweeps.compare import compare
from cod_lightning.reports.sweeps.page import page
from tests.reports.sweeps.test_compare import job, only, successes

RATES = {
    ("episode", "rec"): 0.5,
    ("episode", "grpo"): 0.4,
    ("episode", "loop"): 0.3,
    ("task", "rec"): 0.3,
    ("task", "grpo"): 0.1,
}


@pytest.fixture
def grid(tmp_path: Path) -> Any:
    for order, ((credit, method), rate) in enumerate(RATES.items()):
        for seed in (1, 2) if credit == "task" else (1, 2, 3):
            job(tmp_path, seed, rate, order=order, credit=credit, method=method)
    return only(tmp_path)["grid"]


def test_the_key_with_the_most_choices_goes_along_the_columns_and_the_reference_is_on_top(grid: Any) -> None:
    assert (grid["key"], grid["columns"]) == ("method", ["rec", "grpo", "loop"])
    assert [row["label"] for row in grid["rows"]] == ["credit=episode", "credit=task"]
    assert grid["rows"][1]["seeds"] == {"rec": 2, "grpo": 2}


def test_a_row_is_compared_with_the_first_by_seed_and_pack_in_its_own_column(grid: Any) -> None:
    top, row = grid["rows"]
    assert top["minus_first"] == {}
    assert set(row["minus_first"]) == {"rec", "grpo"}
    for method, rates in {"rec": (0.3, 0.5), "grpo": (0.1, 0.4)}.items():
        paired = np.stack([successes(seed, rates[0]) - successes(seed, rates[1]) for seed in (1, 2)])
        assert row["minus_first"][method]["mean"] == pytest.approx(paired.mean(), abs=1e-4)


def test_where_nothing_is_crossed_there_is_no_grid(tmp_path: Path) -> None:
    for order, setting in enumerate([("episode", "rec"), ("episode", "grpo"), ("task", "rec")]):
        job(tmp_path, 1, 0.3, order=order, credit=setting[0], method=setting[1])
    assert only(tmp_path)["grid"] is None


def test_the_page_shows_it(tmp_path: Path) -> None:
    for order, ((credit, method), rate) in enumerate(RATES.items()):
        job(tmp_path, 1, rate, order=order, credit=credit, method=method)
    shown = page(compare([tmp_path]), "Title", "command")
    assert "| mean success (seeds) | method=rec | method=grpo | method=loop |" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("| credit=task minus credit=episode")]
    assert line.count("[") == 2
    assert line.endswith("|  |")


def test_a_key_that_an_older_run_did_not_know_is_no_difference(tmp_path: Path) -> None:
    for order, (credit, others) in enumerate({"episode": {}, "task": {"mismatch": "none"}}.items()):
        folder = job(tmp_path, 1, 0.3, order=order, credit=credit, **others)
        record = (folder / "job.json").read_text().replace('"mismatch=none",', "")
        (folder / "job.json").write_text(record)
    assert only(tmp_path)["varied"] == ["credit"]
