"""The runs of a sweep side by side: what is paired with what, and what the page then says."""

import csv
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

from cod_lightning.cli import main
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.evaluation.crossed import crossed_estimate
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.packs_file import SCHEMA, write_packs
from cod_lightning.evaluation.results import PlayedCondition
from cod_lightning.evaluation.schema import SuiteRecord
from cod_lightning.evaluation.suite import Suite
from cod_lightning.reports.sweeps.compare import compare
from cod_lightning.reports.sweeps.page import page
from cod_lightning.reports.sweeps.record import JobRecord, JobStatus, read_jobs, write_record

PACKS = 60
CELL = Suite(name="held_out", controls=("blanked_context",), warm_start_temperatures=(0.3,))


def successes(seed: int, rate: float) -> np.ndarray:
    """[P N], from noise that all cells of a seed share."""
    noise = np.random.default_rng(seed).random((PACKS, 3))
    return (noise < rate + np.array([0.0, 0.1, 0.2])).astype(float)


def evaluated(folder: Path, suite: Suite, by_condition: dict[str, np.ndarray], ids: list[str] | None = None) -> None:
    played = []
    for condition in suite.conditions():
        success = by_condition[condition.name]
        packs = tuple(ids or [f"pack {n}" for n in range(len(success))])
        outcomes = Outcomes(rewards=success / 2, success=success, pack_ids=packs)
        played.append(PlayedCondition(suite=suite, condition=condition, env="levers", outcomes=outcomes))
    controls = {one.condition.name: [] for one in played[1:]}
    record = dict.fromkeys(SuiteRecord.__required_keys__) | {"controls": controls}
    folder.mkdir(exist_ok=True)
    (folder / "evaluation.json").write_text(json.dumps({"suites": {suite.name: record}}))
    write_packs(folder / "evaluation_packs.parquet", played)


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
        overrides=(*(f"{k}={v}" for k, v in setting.items()), f"seed_everything={seed}"),
        setting={"env": "levers", **setting},
        seed=seed,
        order=order,
        status=JobStatus.FINISHED,
        wall_s=10.0 + seed,
        cpu_s=9.0,
        peak_mib=500.0,
        num_attempts=1,
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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed in (1, 2, 3):
        job(tmp_path, seed, 0.3, credit="episode")
        job(tmp_path, seed, 0.5, credit="trajectory", order=1)
    return tmp_path


def only(root: Path, reference: str | None = None) -> Any:
    (sweep,) = compare([root], reference)["sweeps"]
    return sweep


def test_a_cell_is_its_seeds_and_differences_are_paired_by_seed_and_pack(root: Path) -> None:
    sweep = only(root)
    first, second = sweep["cells"]
    assert (sweep["reference"], sweep["varied"], sweep["packs"]) == ("credit=episode", ["credit"], PACKS)
    assert (first["seeds"], first["minus_reference"]) == ([1, 2, 3], None)
    paired = np.stack([successes(s, 0.5) - successes(s, 0.3) for s in (1, 2, 3)])
    expected = crossed_estimate(paired.mean(axis=2))
    found = second["minus_reference"]["mean"]
    assert found["mean"] == pytest.approx(expected.mean, abs=1e-4)
    assert found["ci95"] == pytest.approx([expected.low, expected.high], abs=1e-4)
    at_last = second["minus_reference"]["by_position"][-1]["mean"]
    assert at_last == pytest.approx(paired[:, :, -1].mean(), abs=1e-4)


def test_packs_are_matched_by_name_not_by_place(root: Path) -> None:
    before = only(root)["cells"][1]["minus_reference"]
    folder = next(root.glob("trajectory-2-*"))
    order = np.random.default_rng(0).permutation(PACKS)
    ids = [f"pack {n}" for n in order]
    shuffled = {name: found[order] for name, found in outcomes(2, 0.5).items()}
    (folder / "evaluation_packs.parquet").unlink()
    evaluated(folder, CELL, shuffled, ids)
    assert only(root)["cells"][1]["minus_reference"] == before


def test_each_run_is_paired_with_its_own_seed_s_warm_start_at_its_best_temperature(root: Path) -> None:
    sweep = only(root)
    assert sweep["warm_start"]["best_temperature"] == "warm_start_t0.3"
    above = np.stack([successes(s, 0.3) - successes(s, 0.2) for s in (1, 2, 3)])
    assert sweep["cells"][0]["minus_warm_start"]["mean"]["mean"] == pytest.approx(above.mean(), abs=1e-4)


def test_a_warm_start_of_which_nothing_is_known_is_not_the_best(root: Path) -> None:
    lost = np.full((PACKS, 3), np.nan)

    def known(**changed: np.ndarray) -> Any:
        for folder, record in read_jobs(root).items():
            rate = 0.3 if record.setting["credit"] == "episode" else 0.5
            (folder / "evaluation_packs.parquet").unlink()
            evaluated(folder, CELL, outcomes(record.seed, rate) | changed)
        return only(root)["warm_start"]

    best = known(**{"warm_start_t0.3": lost})
    assert best["best_temperature"] == "warm_start"
    assert known(**{"warm_start": lost, "warm_start_t0.3": lost}) is None


COLUMNS = b"step,tokens/sampled,tokens/trained,time/rollout_s,time/train_s\n"


def test_a_pipe_in_a_job_s_folder_is_not_waited_for(root: Path) -> None:
    os.mkfifo(sorted(root.glob("episode-*"))[0] / "more")
    with pytest.raises(DataError, match=r"more is a pipe, which would be waited for"):
        compare([root])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("metrics.csv", b"step,tokens/sampled\n0,many\n", "is no metrics.csv of this project .ValueError"),
        ("metrics.csv", b"step,tokens/sampled\n0,1\n", "is no metrics.csv of this project .KeyError"),
        ("metrics.csv", None, "is no metrics.csv of this project .FileNotFoundError"),
        (
            "metrics.csv",
            COLUMNS + b"0,1e308,1,1,1\n",
            "is no metrics.csv of this project .ValueError: a number above 1e.18",
        ),
        ("job.json", b"[" * 100_000, "is no job of a sweep .ValidationError"),
        ("job.json", b'{"label": "\xe5"', "is no job of a sweep .UnicodeDecodeError"),
        (
            "evaluation.json",
            {"suites": {"held_out": dict.fromkeys(SuiteRecord.__required_keys__, 3)}},
            "is no evaluation.json of this project .TypeError: controls is no mapping",
        ),
        ("job.json", {"order": "x"}, r"is no job of a sweep .ValidationError: .* at `\$\.order`"),
        ("job.json", {"seed": None}, r"is no job of a sweep .ValidationError: .* at `\$\.seed`"),
        ("job.json", {"setting": [1]}, r"is no job of a sweep .ValidationError: .* at `\$\.setting`"),
        ("job.json", {"wall_s": float("nan")}, "is no job of a sweep .DecodeError"),
        ("evaluation.json", b"[" * 100_000, "is no evaluation.json of this project .RecursionError"),
        ("evaluation_packs.parquet", [0, 2], "without every position once"),
        ("evaluation_packs.parquet", [0, 0], "without every position once"),
        ("evaluation_packs.parquet", [2**31 - 1, 0], "without every position once"),
        ("evaluation_packs.parquet", [-1, -1], "without every position once"),
    ],
)
def test_a_damaged_file_of_a_job_is_named_in_one_line(root: Path, name: str, content: Any, said: str) -> None:
    path = sorted(root.glob("episode-*"))[0] / name
    if content is None:
        path.unlink()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, dict):
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
    assert (cost["wall_s"], cost["cpu_s"], cost["peak_mib"]) == (12.0, 9.0, 500.0)


def test_unequal_budgets_are_said(root: Path) -> None:
    assert only(root)["notes"] == []
    job(root, 4, 0.3, tokens=1200.0, credit="episode")
    notes = " ".join(only(root)["notes"])
    assert "runs sampled 1,000 to 1,200 tokens" in notes
    assert "different seeds" in notes


def test_a_failed_job_is_a_note_and_its_seed_is_missing(root: Path) -> None:
    folder = next(root.glob("trajectory-2-*"))
    content = json.loads((folder / "job.json").read_text()) | {"status": "failed", "error": "the loss is nan"}
    (folder / "job.json").write_text(json.dumps(content))
    sweep = only(root)
    assert (sweep["cells"][1]["seeds"], sweep["cells"][1]["not_finished"]) == ([1, 3], [2])
    assert "credit=trajectory, seed 2, is not in the figures, failed: the loss is nan" in sweep["notes"]


def test_of_several_comparisons_the_notes_name_those_that_survive_holm_s_correction(tmp_path: Path) -> None:
    rates = {"a": 0.3, "b": 0.31, "c": 0.7, "d": 0.32}
    for order, (choice, rate) in enumerate(rates.items()):
        for seed in (1, 2, 3, 4):
            job(tmp_path, seed, rate, order=order, method=choice)
    (sweep,) = compare([tmp_path])["sweeps"]
    (said,) = [note for note in sweep["notes"] if "Holm" in note]
    assert said.startswith("3 cells are compared with the reference")
    assert said.endswith("correction: method=c.")
    assert sweep["rules"] == PACKS


def test_a_choice_that_only_follows_from_another_is_no_key_of_the_table(tmp_path: Path) -> None:
    for method, loss in (("grpo", "ratio"), ("rec", "clip")):
        folder = job(tmp_path, 1, 0.4, method=method)
        content = json.loads((folder / "job.json").read_text())
        content["setting"]["loss"] = loss
        (folder / "job.json").write_text(json.dumps(content))
    assert only(tmp_path)["varied"] == ["method"]


def test_a_key_that_an_older_run_did_not_know_is_no_difference(tmp_path: Path) -> None:
    for order, (credit, others) in enumerate({"episode": {}, "task": {"mismatch": "none"}}.items()):
        folder = job(tmp_path, 1, 0.3, order=order, credit=credit, **others)
        record = (folder / "job.json").read_text().replace('"mismatch=none",', "")
        (folder / "job.json").write_text(record)
    assert only(tmp_path)["varied"] == ["credit"]


def test_one_cell_and_seed_from_two_configs_is_refused(root: Path) -> None:
    twice = next(root.glob("episode-1-*"))
    (root / "again").mkdir()
    for file in twice.iterdir():
        (root / "again" / file.name).write_bytes(file.read_bytes())
    with pytest.raises(DataError, match="have the same setting and seed, but not the same config"):
        compare([root])


def test_the_page_says_what_won_by_how_much_and_how_to_run_it_again(root: Path) -> None:
    text = page(compare([root], "credit=trajectory"), "Title", "the command")
    assert "Highest mean: credit=trajectory, 0." in text
    assert "credit=episode against credit=trajectory: -0." in text
    assert "(lower)" in text
    command = "python -m cod_lightning sweep --config study/made credit=episode seed_everything=1,2,3"
    assert command in text


def test_texts_from_outside_are_shown_in_the_page_and_never_act(root: Path) -> None:
    hostile = "$\\x^{ | <img src=x> ![a](http://evil.example) ```"
    hostile_name = f"study/{hostile}>)\x1b[2J"
    for seed in (1, 2, 3):
        job(root, seed, 0.4, order=2, credit="hostile")
    for folder, record in read_jobs(root).items():
        if record.setting.get("credit") == "hostile":
            typed = (f"credit={hostile}", f"seed_everything={record.seed}")
            record = replace(record, setting={**record.setting, "credit": hostile}, overrides=typed)
        write_record(folder, replace(record, config=hostile_name))
    failed = job(root, 4, 0.4, credit="hostile")
    record = read_jobs(root)[failed]
    write_record(failed, replace(record, config=hostile_name, status=JobStatus.FAILED, error=f"ValueError: {hostile}"))
    assert main(["sweep", "--table", str(root)]) == 0
    text = (root / "sweep_results.md").read_text()
    assert "\x1b" not in text
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "<img src=x" not in html
    assert 'evil.example"' not in html
    assert html.count("&lt;img src=x&gt;") > 5
    assert html.count("<pre>") == 1


def test_a_row_is_run_again_by_what_can_be_typed(root: Path) -> None:
    """A group that the config does not have may be typed with +."""
    for folder, record in read_jobs(root).items():
        if record.setting.get("credit") == "episode":
            typed = ("credit=episode", "+source=history", "model.lr=1e-3", f"seed_everything={record.seed}")
            write_record(folder, replace(record, overrides=typed))
    axes = "credit=episode +source=history model.lr=1e-3 seed_everything=1,2,3"
    assert f"python -m cod_lightning sweep --config study/made {axes}" in page(compare([root]), "Title", "the command")


@pytest.mark.parametrize("asked", ["credit=none", "env=levers", "nonsense"])
def test_a_reference_that_is_not_one_cell_is_refused(root: Path, asked: str) -> None:
    with pytest.raises(
        ConfigError, match=r"--reference is .* expected one cell out of: credit=episode; credit=trajectory"
    ):
        compare([root], asked)


def test_the_command_writes_json_and_page_without_running_anything(root: Path, capsys: Any) -> None:
    assert main(["sweep", "--table", str(root), "--results", str(root / "ablations")]) == 0
    written = sorted(path.name for path in root.glob("ablations*"))
    assert written == ["ablations.json", "ablations.md"]
    assert json.loads((root / "ablations.json").read_text())["sweeps"][0]["reference"] == "credit=episode"
    assert "Highest mean" in capsys.readouterr().out


def test_a_folder_without_jobs_is_a_mistake_in_one_line(tmp_path: Path, capsys: Any) -> None:
    assert main(["sweep", "--table", str(tmp_path)]) == 2
    assert "expected the folder of a sweep" in capsys.readouterr().err
