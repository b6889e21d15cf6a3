"""`evaluation.json` has the keys that scripts rely on, no NaN, and survives being written again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cod_lightning.errors import DataError
from cod_lightning.evaluation.figures import figures
from cod_lightning.evaluation.results import read_results, results_of, write_results
from cod_lightning.evaluation.suite import Suite
from tests.cases import each
from tests.played import NUM_PACKS, play


def test_the_file_has_the_keys_that_scripts_rely_on(tmp_path: Path) -> None:
    write_results(tmp_path / "evaluation.json", play(Suite(name="heldout")))
    record = json.loads((tmp_path / "evaluation.json").read_text())["suites"]["heldout"]
    assert (record["env"], record["packs"], record["pack_size"], record["temperature"]) == ("lake", NUM_PACKS, 4, 1.0)
    assert len(record["positions"]) == 4
    assert set(record["positions"][0]) == {
        "reward", "reward_ci95", "success", "success_ci95", "n", "malformed",
    }  # fmt: skip
    assert set(record["controls"]) == {
        "blanked_context", "warm_start", "warm_start_t0.0", "warm_start_t0.3", "warm_start_t0.5", "warm_start_t0.7",
        "warm_start_blanked", "random", "memoryless", "scripted", "oracle",
    }  # fmt: skip
    assert record["controls"]["warm_start"][0].keys() == record["positions"][0].keys()
    first, last = record["positions"][0], record["positions"][-1]
    assert record["cod_gain"] == pytest.approx(last["success"] - first["success"])
    assert first["success_ci95"][0] < first["success"] < first["success_ci95"][1]
    assert first["n"] == NUM_PACKS


def test_the_trained_policy_is_compared_with_the_warm_start_at_its_best_temperature() -> None:
    record: Any = results_of(play(Suite(name="heldout")))["suites"]["heldout"]
    difference = record["paired"]["trained_minus_best_warm_start"]
    assert difference is not None
    assert difference["best_temperature"] == 0.5
    assert difference["temperatures"] == [0.0, 0.3, 0.5, 0.7, 1.0]
    means = [np.mean([p["success"] for p in ps]) for ps in (record["positions"], record["controls"]["warm_start_t0.5"])]
    assert difference["mean_difference"] == pytest.approx(means[0] - means[1])
    low, high = difference["ci95"]
    assert low < difference["mean_difference"] < high


def test_the_blanked_deviation_is_the_largest_distance_from_position_0() -> None:
    record: Any = results_of(play(Suite(name="heldout")))["suites"]["heldout"]
    first = record["positions"][0]["success"]
    expected = max(abs(p["success"] - first) for p in record["controls"]["blanked_context"])
    assert record["paired"]["blanked_max_deviation"] == pytest.approx(expected)


def test_what_is_missing_is_null_in_the_file_and_without_controls_nothing_is_compared(tmp_path: Path) -> None:
    (trained,) = play(Suite(name="bare", controls=(), warm_start_temperatures=()))
    trained.outcomes.success[:, 3], trained.outcomes.rewards[:, 3] = np.nan, np.nan
    write_results(tmp_path / "evaluation.json", [trained])
    record = read_results(tmp_path / "evaluation.json")["suites"]["bare"]
    assert record["positions"][3] == dict.fromkeys(record["positions"][0]) | {"n": 0}
    assert (record["cod_gain"], record["controls"]) == (None, {})
    assert record["paired"]["trained_minus_best_warm_start"] is record["paired"]["blanked_max_deviation"] is None


def few(name: str) -> Suite:
    """A suite of few conditions, each of which takes a bootstrap."""
    return Suite(name=name, controls=("blanked_context", "random"), warm_start_temperatures=(0.5,))


def test_suites_that_were_not_played_again_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    write_results(path, play(few("first")))
    write_results(path, play(few("second"), ["trained"]))
    write_results(path, play(few("second")))
    results = read_results(path)
    assert list(results["suites"]) == ["first", "second"]
    assert "warm_start" in results["suites"]["second"]["controls"]
    assert [p.name for p in tmp_path.iterdir()] == ["evaluation.json"]


def test_suites_that_another_process_wrote_while_figures_were_computed_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, compute = tmp_path / "evaluation.json", figures

    def meanwhile(*args: Any) -> Any:
        monkeypatch.setattr("cod_lightning.evaluation.results.figures", compute)
        write_results(path, play(few("theirs"), ["trained"]))
        return compute(*args)

    monkeypatch.setattr("cod_lightning.evaluation.results.figures", meanwhile)
    write_results(path, play(few("ours"), ["trained"]))
    assert list(read_results(path)["suites"]) == ["theirs", "ours"]


def test_a_suite_that_replaces_another_of_its_name_is_noted_and_one_that_is_played_again_is_not(
    tmp_path, capsys
) -> None:
    path = tmp_path / "evaluation.json"
    write_results(path, play(few("a")))
    write_results(path, play(few("a")))
    assert capsys.readouterr().err == ""
    kept = json.loads(path.read_text())
    kept["suites"]["a"] |= {"packs": 1024, "env": "radio"}
    path.write_text(json.dumps(kept))
    record: Any = write_results(path, play(few("a")))["suites"]["a"]
    changed = f"env radio -> {record['env']}, packs 1024 -> {record['packs']}"
    assert capsys.readouterr().err == f"note: {path}: the suite a replaces another of that name ({changed})\n"


def test_a_warm_start_alone_is_no_result_yet() -> None:
    assert results_of(play(few("a"), ["warm_start"])) == {"suites": {}}


def test_a_file_of_an_earlier_version_is_read_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    old: Any = results_of(play(few("old")))
    for key in ("figures", "checkpoint"):
        old["suites"]["old"].pop(key)
    path.write_text(json.dumps(old))
    assert list(write_results(path, play(few("new")))["suites"]) == ["old", "new"]


@each("text", ["{", "[]", '{"suites": {"a": {}}}', '{"suites": []}'])
def test_a_foreign_file_is_named_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "evaluation.json"
    path.write_text(text)
    with pytest.raises(DataError, match="evaluation"):
        write_results(path, play(few("a")))
    assert path.read_text() == text


def test_conditions_that_are_played_again_count_once() -> None:
    played = play(Suite(name="heldout"))
    assert results_of([*played, *played]) == results_of(played)
