"""The runs of a sweep side by side: what is paired with what, and what the page then says."""

import csv
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

from cod_lightning.cli import main
from cod_lightning.errors import DataError
from cod_lightning.evaluation.crossed import crossed_estimate
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.packs_file import SCHEMA, write_packs
from cod_lightning.evaluation.results import PlayedCondition
from cod_lightning.evaluation.schema import SuiteRecord
from cod_lightning.evaluation.suite import Suite
from cod_lightning.reports.sweeps.compare import compare, page
from cod_lightning.reports.sweeps.record import JobRecord, read_jobs, write_record

PACKS = 60
CELL = Suite(name="held_out", controls=("blanked_context",), warm_start_temperatures=(0.3,))


def successes(seed: int, rate: float) -> np.ndarray:
    """[P N], from noise that all cells of a seed share."""
    noise = np.random.default_rng(seed).random((PACKS, 3))
    return (noise < rate + np.array([0.0, 0.1, 0.2])).astype(float)


def evaluated(folder: Path, suite: Suite, by_condition: dict[str, np.ndarray], ids: list[str] | None = None) -> None:
    played = []
    for control in suite.conditions():
        success = by_condition[control.name]
        packs = tuple(ids or [f"pack {n}" for n in range(len(success))])
        outcomes = Outcomes(rewards=success / 2, success=success, pack_ids=packs)
        played.append(PlayedCondition(suite=suite, control=control, env="levers", outcomes=outcomes))
    controls = {one.control.name: [] for one in played[1:]}
    paired = {"trained_minus_best_warm_start": None, "gain_ci95": None, "blanked_max_deviation": None}
    record = {"env": "levers", "packs": PACKS, "pack_size": 3, "temperature": 1.0, "cod_gain": None, "paired": paired}
    record |= {"positions": [], "controls": controls}
    folder.mkdir(exist_ok=True)
    (folder / "evaluation.json").write_text(json.dumps({"suites": {suite.name: record}}))
    write_packs(folder / "evaluation_packs.parquet", played)


def evaluated_again(folder: Path, by_condition: dict[str, np.ndarray], ids: list[str] | None = None) -> None:
    """With nothing left of before."""
    (folder / "evaluation_packs.parquet").unlink()
    evaluated(folder, CELL, by_condition, ids)


def outcomes(seed: int, rate: float) -> dict[str, np.ndarray]:
    """By condition: a trained policy that solves so much, and a warm start that solves a fifth of the tasks."""
    none = dict.fromkeys(("blanked_context", "warm_start", "warm_start_blanked"), np.zeros((PACKS, 3)))
    return {"trained": successes(seed, rate), "warm_start_t0.3": successes(seed, 0.2), **none}


def job(root: Path, seed: int, rate: float, *, tokens: float = 1000.0, order: int = 0, **setting: str) -> Path:
    """A finished run of a cell that solves so much."""
    folder = root / f"{'-'.join(setting.values())}-{seed}-hash"
    record = JobRecord(
        label=folder.name,
        config="study/made",
        overrides=("env=levers", *(f"{k}={v}" for k, v in setting.items())),
        cell=str(setting),
        seed=seed,
        order=order,
        finished=True,
    )
    write_record(folder, record)
    evaluated(folder, CELL, outcomes(seed, rate))
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["step", "tokens/sampled", "tokens/trained", "time/rollout_s", "time/train_s", "val/success/position_0"]
        )
        for step, share in enumerate((0.5, 1.0)):
            writer.writerows([[2 * step, tokens * share, 200 * (step + 1) - 100, 3.0, 1.0, ""]])
            writer.writerows([[2 * step + 1, tokens * share, 200 * (step + 1), 3.0, 1.0, ""]])
            writer.writerows([[2 * step + 1, "", "", "", "", rate * share]])
    return folder


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swept")
    for seed in (1, 2, 3):
        job(folder, seed, 0.3, credit="episode")
        job(folder, seed, 0.5, credit="trajectory", order=1)
    return folder


@pytest.fixture
def root(swept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(swept, tmp_path, dirs_exist_ok=True)


def only(root: Path, reference: str | None = None) -> Any:
    (sweep,) = compare([root], reference)
    return sweep


def test_a_cell_is_its_seeds_and_differences_are_paired_by_seed_and_pack(root: Path) -> None:
    sweep = only(root)
    first, second = sweep["cells"]
    assert (sweep["reference"], sweep["packs"]) == ("credit=episode", PACKS)
    assert [cell["label"] for cell in sweep["cells"]] == ["credit=episode", "credit=trajectory"]
    assert (first["seeds"], first["minus_reference"]) == ([1, 2, 3], None)
    paired = np.stack([successes(s, 0.5) - successes(s, 0.3) for s in (1, 2, 3)])
    expected = crossed_estimate(paired.mean(axis=2))
    found = second["minus_reference"]["mean"]
    assert found["mean"] == pytest.approx(expected.mean, abs=1e-4)
    assert found["ci95"] == pytest.approx([expected.low, expected.high], abs=1e-4)
    at_last = second["minus_reference"]["by_position"][-1]["mean"]
    assert at_last == pytest.approx(paired[:, :, -1].mean(), abs=1e-4)


def test_an_interval_over_few_seeds_ends_where_a_share_ends(tmp_path: Path) -> None:
    job(tmp_path, 1, 0.0, credit="episode")
    job(tmp_path, 2, 0.9, credit="episode")
    job(tmp_path, 1, 0.9, credit="trajectory", order=1)
    job(tmp_path, 2, 0.0, credit="trajectory", order=1)
    first, second = only(tmp_path)["cells"]
    assert first["success"]["mean"]["ci95"] == [0.0, 1.0]
    assert first["blanked"]["ci95"] is None, "all alike"
    assert second["minus_reference"]["mean"]["ci95"] == [-1.0, 1.0]
    low, high = first["success"]["gain"]["ci95"]
    assert -1.0 <= low < high <= 1.0


def test_packs_are_matched_by_name_not_by_place(root: Path) -> None:
    before = only(root)["cells"][1]["minus_reference"]
    folder = next(root.glob("trajectory-2-*"))
    order = np.random.default_rng(0).permutation(PACKS)
    ids = [f"pack {n}" for n in order]
    shuffled = {name: found[order] for name, found in outcomes(2, 0.5).items()}
    evaluated_again(folder, shuffled, ids)
    assert only(root)["cells"][1]["minus_reference"] == before


def test_a_pack_that_one_run_lacks_is_left_out_of_a_difference(root: Path) -> None:
    folder = next(root.glob("trajectory-2-*"))
    fewer = {name: found[1:] for name, found in outcomes(2, 0.5).items()}
    evaluated_again(folder, fewer, [f"pack {n}" for n in range(1, PACKS)])
    paired = np.stack([successes(s, 0.5) - successes(s, 0.3) for s in (1, 2, 3)])[:, 1:]
    found = only(root)["cells"][1]["minus_reference"]["mean"]
    assert found["mean"] == pytest.approx(crossed_estimate(paired.mean(axis=2)).mean, abs=1e-4)


def test_each_run_is_paired_with_its_own_seed_s_warm_start_at_its_best_temperature(root: Path) -> None:
    sweep = only(root)
    assert sweep["warm_start"].keys() == {"warm_start", "warm_start_t0.3"}
    above = np.stack([successes(s, 0.3) - successes(s, 0.2) for s in (1, 2, 3)])
    assert sweep["cells"][0]["minus_warm_start"]["mean"]["mean"] == pytest.approx(above.mean(), abs=1e-4)


def test_a_warm_start_of_which_nothing_is_known_is_not_the_best(root: Path) -> None:
    lost = np.full((PACKS, 3), np.nan)

    def known(**changed: np.ndarray) -> Any:
        for folder, record in read_jobs(root).items():
            rate = 0.3 if "credit=episode" in record.overrides else 0.5
            evaluated_again(folder, outcomes(record.seed, rate) | changed)
        return only(root)["cells"][0]["minus_warm_start"]

    trained = np.stack([successes(seed, 0.3) for seed in (1, 2, 3)]).mean()
    assert known(**{"warm_start_t0.3": lost})["mean"]["mean"] == pytest.approx(trained, abs=1e-4), "minus 0"
    assert known(**{"warm_start": lost, "warm_start_t0.3": lost}) is None


@pytest.mark.parametrize("name", ["job.json", "evaluation.json", "evaluation_packs.parquet"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_device_in_a_job_s_folder_is_not_read(root: Path, name: str, make: Callable[[Path], None]) -> None:
    folder = sorted(root.glob("episode-*"))[0]
    make(folder / "more")
    compare([root])
    (folder / name).unlink()
    make(folder / name)
    with pytest.raises(DataError, match=rf"{name} is no .*it is no file"):
        compare([root])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("job.json", {"overrides": [1]}, r"is no job of a sweep .ValidationError: .* at `\$\.overrides"),
        (
            "evaluation.json",
            {"suites": {"held_out": dict.fromkeys(SuiteRecord.__required_keys__, 3)}},
            "ValidationError",
        ),
        ("evaluation_packs.parquet", [0, 2], "without every position once"),
        ("evaluation_packs.parquet", [-1, -1], "without every position once"),
    ],
)
def test_a_damaged_file_of_a_job_is_named_in_one_line(root: Path, name: str, content: Any, said: str) -> None:
    path = sorted(root.glob("episode-*"))[0] / name
    if isinstance(content, dict):
        path.write_text(json.dumps(json.loads(path.read_text()) | content))
    else:
        rows = [{"suite": "held_out", "condition": "trained", "pack": "a", "position": n} for n in content]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
    with pytest.raises(DataError, match=said) as raised:
        compare([root])
    assert "\n" not in str(raised.value)


def test_costs_come_from_the_metrics(root: Path) -> None:
    cost = only(root)["cells"][0]["cost"]
    assert (cost["sampled_tokens"], cost["trained_tokens"], cost["updates"]) == (1000.0, 400.0, 4.0)
    assert cost["train_s"] == 2 * 3.0 + 4 * 1.0, "a rollout counts once, whatever it is trained on"


def test_what_siblings_solved_in_training_and_entropy_stand_beside_the_costs(root: Path) -> None:
    for n, path in enumerate(sorted(root.glob("episode-*/metrics.csv"))):
        rows = (f"{step},{0.1 * n + (step > 5)},{step / 10}" for step in range(8))
        path.write_text("\n".join(["step,train/pass_at/8,train/entropy", *rows, ""]))
    first, other = only(root)["cells"]
    assert first["in_training"]["pass@8"] == pytest.approx((0.1, 1.1)), "means of three seeds"
    assert first["in_training"]["entropy"] == pytest.approx((0.0, 0.65)), "the last quarter of eight updates"
    assert other["in_training"] == {}
    assert "8 0.10 to 1.10, entropy 0.00 to 0.65 |" in page(compare([root]), "the command")


def test_where_some_updates_alone_are_logged_all_are_counted_and_seconds_are_left_open(root: Path) -> None:
    for path in root.glob("episode-*/metrics.csv"):
        path.write_text("step,tokens/sampled,time/rollout_s,time/train_s\n9,500,3,1\n19,1000,3,1\n")
    cost = only(root)["cells"][0]["cost"]
    assert (cost["updates"], cost["train_s"]) == (20.0, None)


@pytest.mark.parametrize("content", [None, "step,tokens/sampled\n0,many\n", "step,tokens/sampled\n0,1e308\n"])
def test_a_cost_that_no_run_can_have_is_left_open(root: Path, content: str | None) -> None:
    for path in root.glob("episode-*/metrics.csv"):
        path.unlink()
        if content is not None:
            path.write_text(content)
    cost = only(root)["cells"][0]["cost"]
    assert (cost["sampled_tokens"], cost["trained_tokens"], cost["train_s"]) == (None, None, None)
    assert cost["updates"] is None or content == "step,tokens/sampled\n0,1e308\n"
    assert "| - | - |" in page(compare([root]), "the command")


def test_unequal_budgets_are_said(root: Path) -> None:
    assert only(root)["notes"] == []
    job(root, 4, 0.3, tokens=1200.0, credit="episode")
    notes = " ".join(only(root)["notes"])
    assert "runs sampled 1,000 to 1,200 tokens" in notes
    assert "different seeds" in notes


def test_a_job_that_is_not_finished_is_a_note_and_its_seed_is_missing(root: Path) -> None:
    folder = next(root.glob("trajectory-2-*"))
    write_record(folder, replace(read_jobs(root)[folder], finished=False, error="the loss is nan"))
    sweep = only(root)
    assert sweep["cells"][1]["seeds"] == [1, 3]
    assert "credit=trajectory, seed 2, is not finished, and not in the figures: the loss is nan" in sweep["notes"]


def test_a_suite_that_a_run_did_not_play_is_no_comparison_and_a_missing_one_is_said(root: Path) -> None:
    folder = next(root.glob("episode-2-*"))
    known = json.loads((folder / "evaluation.json").read_text())["suites"]
    more = {"suites": known | {"tested_later": known["held_out"]}}
    (folder / "evaluation.json").write_text(json.dumps(more))
    assert only(root)["suite"] == "held_out", "of checkpoints that were tested there are no rows of the run's own"
    evaluated(folder, replace(CELL, name="tested_later"), outcomes(2, 0.3))
    (folder / "evaluation.json").write_text(json.dumps(more))
    first, second = compare([root])
    assert (first["notes"], second["cells"][0]["seeds"]) == ([], [2])
    assert "credit=trajectory, seed 2, is not evaluated on this suite, and not in the figures" in second["notes"]


def test_cells_of_other_pack_sizes_keep_their_mean_under_its_head(root: Path) -> None:
    for folder in root.glob("trajectory-*"):
        evaluated_again(folder, {name: np.hstack([of, of]) for name, of in outcomes(1, 0.5).items()})
    lines = page(compare([root]), "the command").splitlines()
    head, short, long = (
        next([cell.strip() for cell in line.split("|")] for line in lines if line.startswith(f"| {name} | "))
        for name in ("cell", "credit=episode", "credit=trajectory")
    )
    assert len(head) == len(short) == len(long)
    cells = {cell["label"]: cell["success"] for cell in only(root)["cells"]}
    for label, line in (("credit=episode", short), ("credit=trajectory", long)):
        assert line[head.index("mean")].startswith(f"{cells[label]['mean']['mean']:.3f}")
    assert (short[head.index("3")], long[head.index("3")][:2]) == ("", "0.")
    assert any(line.startswith(f"{PACKS} packs of 3 or 6; seeds") for line in lines)


def test_a_run_that_several_folders_have_counts_once_and_is_a_note(root: Path, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other")
    again = job(other, 2, 0.9, tokens=4000.0, credit="episode")
    (sweep,) = compare([root, other])
    first = sweep["cells"][0]
    assert (first["seeds"], first["cost"]["sampled_tokens"]) == ([1, 2, 3], 2000.0)
    said = f"credit=episode, seed 2, is in several folders; the figures are those of {again}"
    assert sweep["notes"].count(said) == 1


def test_of_several_comparisons_the_notes_name_those_that_survive_holm_s_correction(tmp_path: Path) -> None:
    rates = {"a": 0.3, "b": 0.31, "c": 0.7, "d": 0.32}
    for order, (choice, rate) in enumerate(rates.items()):
        for seed in (1, 2, 3, 4):
            job(tmp_path, seed, rate, order=order, method=choice)
    (sweep,) = compare([tmp_path])
    (said,) = [note for note in sweep["notes"] if "Holm" in note]
    assert said.startswith("3 cells are compared with the reference")
    assert said.endswith("correction: method=c.")
    assert sweep.get("rules") == PACKS
    for order, choice in enumerate("ab"):
        for seed in (1, 2):
            job(tmp_path / "two", seed, rates[choice], order=order, method=choice)
    (single,) = compare([tmp_path / "two"])
    assert not any("Holm" in note for note in single["notes"]), "a single comparison needs no correction"


def test_a_cell_that_differs_nowhere_is_one_of_the_comparisons_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, float]] = []
    monkeypatch.setattr("cod_lightning.reports.sweeps.compare.holm", lambda found: asked.append(found) or [])
    for order, (choice, rate) in enumerate({"a": 0.3, "same": 0.3, "b": 0.5}.items()):
        for seed in (1, 2, 3):
            job(tmp_path, seed, rate, order=order, method=choice)
    compare([tmp_path])
    ((same, other),) = (of.values() for of in asked)
    assert same == 1.0
    assert 0 < other < 0.05


def test_a_cell_is_one_config_however_its_seeds_were_typed_and_two_of_one_name_are_refused(root: Path) -> None:
    folder = next(root.glob("episode-3-*"))
    record = read_jobs(root)[folder]
    write_record(folder, replace(record, overrides=("credit=cod_lightning.credit.episode",), order=9))
    assert [cell["seeds"] for cell in only(root)["cells"]] == [[1, 2, 3], [1, 2, 3]]
    write_record(folder, replace(record, cell="of a config that was changed"))
    with pytest.raises(DataError, match="are of two different configs, both with credit=episode"):
        compare([root])


def test_the_page_has_every_cell_and_what_it_started_from(root: Path) -> None:
    text = page(compare([root], "credit=trajectory"), "the command")
    assert "reference: credit=trajectory." in text
    (first, second) = (line for line in text.splitlines() if line.startswith("| credit=episode |"))
    assert first.startswith("| credit=episode | 3 | 0.")
    assert second.startswith("| credit=episode | -0.")
    assert "| 4 | 1,000 | 400 | 10 |" in second
    assert "| warm\\_start\\_t0.3 |  | 0." in text


def test_texts_from_outside_are_shown_in_the_page_and_never_act(root: Path) -> None:
    hostile = "$\\x^{ | <img src=x> ![a](http://evil.example) ```"
    hostile_name = f"study/{hostile}>)\x1b[2J"
    for seed in (1, 2, 3):
        job(root, seed, 0.4, order=2, credit="hostile")
    for folder, record in read_jobs(root).items():
        if "credit=hostile" in record.overrides:
            record = replace(record, overrides=(f"credit={hostile}",), cell=hostile)
        write_record(folder, replace(record, config=hostile_name))
    failed = job(root, 4, 0.4, credit="hostile")
    record = read_jobs(root)[failed]
    write_record(failed, replace(record, config=hostile_name, finished=False, error=f"ValueError: {hostile}"))
    assert main(["sweep", "--table", str(root)]) == 0
    text = (root / "sweep_results.md").read_text()
    assert "\x1b" not in text
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "<img src=x" not in html
    assert 'evil.example"' not in html
    assert html.count("&lt;img src=x&gt;") >= 5


def test_a_reference_may_be_named_as_the_table_names_it_beside_cells_that_have_more(root: Path) -> None:
    job(root, 1, 0.4, order=2, credit="episode", lr="0.1")
    assert only(root, "credit=episode")["reference"] == "credit=episode"
    assert only(root, "lr=0.1")["reference"] == "credit=episode, lr=0.1"


def test_the_command_writes_json_and_page_without_running_anything(root: Path, capsys: Any) -> None:
    assert main(["sweep", "--table", str(root)]) == 0
    written = sorted(path.name for path in root.glob("sweep_results*"))
    assert written == ["sweep_results.json", "sweep_results.md"]
    assert json.loads((root / "sweep_results.json").read_text())["sweeps"][0]["reference"] == "credit=episode"
    assert "credit=trajectory" in capsys.readouterr().out


def test_a_narrow_screen_shows_what_cells_differ_by_in_full(root: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["sweep", "--table", str(root)]) == 0
    shown = capsys.readouterr().out
    assert "credit=trajectory " in shown
    assert "…" not in shown


def test_a_folder_without_jobs_is_a_mistake_in_one_line(tmp_path: Path, capsys: Any) -> None:
    assert main(["sweep", "--table", str(tmp_path)]) == 2
    assert "expected the folder of a sweep" in capsys.readouterr().err
