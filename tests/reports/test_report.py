"""The data of a report: what is there is in it, and what is not is said."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cod_lightning.errors import ConfigError
from cod_lightning.reports.report import report_data
from cod_lightning.rollout import transcript
from tests.cases import each
from tests.records import group
from tests.reports.made_runs import varied_groups, write_config, write_evaluation, write_metrics, write_run

GROUPS = [group("a", [[True, False], [False, True]], context="left is up"), group("b", [[True, True], [None, False]])]


def _notes(folder: Path) -> str:
    return "\n".join(report_data([folder])[0]["runs"][0]["notes"])


def test_a_finished_run_has_everything_and_no_notes(tmp_path):
    overview, lives = report_data([write_run(tmp_path / "one", GROUPS)])
    (run,) = overview["runs"]
    assert run["name"] == "one"
    assert run["notes"] == []
    (_, _, suite), *_ = overview["suites"]["held_out"]["tables"]
    assert [row.label for row in suite.rows] == [
        "trained T=1", "blanked context", "warm start T=0.3 *", "warm start T=1",
    ]  # fmt: skip
    assert suite.sentences[0].startswith("Success of the trained policy rises")
    assert overview["files"][0] == {
        "run": 0, "label": "train", "lifecycles": 4, "shown": 4,
    }  # fmt: skip
    assert len(lives["lifecycles"]) == 4


def test_a_lifecycle_is_told_in_short(tmp_path):
    _, lives = report_data([write_run(tmp_path, GROUPS)])
    first, strings = lives["lifecycles"][0], lives["strings"]
    solve, update, later = first["episodes"]
    assert (solve["kind"], solve["position"], solve["status"]) == ("solve", 0, "completed")
    assert (solve["reward"], solve["success"], solve["advantage"]) == (1.0, True, 0.5)
    assert strings[update["context_after"]] == strings[later["context_before"]] == "left is up"
    turn = solve["turns"][0]
    assert (strings[turn["observation"]], strings[turn["response"]]) == ("a wall", "go left")
    assert (turn["stop"], turn["policy_version"], turn["logprobs"]) == ("stop", 3, [-0.1, -2.5])
    assert "action_ids" not in json.dumps(lives)


def test_missing_parts_are_noted_and_the_rest_is_there(tmp_path):
    write_config(tmp_path)
    notes = _notes(tmp_path)
    for missing in ("evaluation.json", "metrics.csv", "lifecycles"):
        assert missing in notes
    write_evaluation(tmp_path)
    write_metrics(tmp_path)
    transcript.write(tmp_path / "lifecycles" / "validation.jsonl", GROUPS)
    assert _notes(tmp_path) == ""


def test_an_evaluation_of_earlier_weights_is_noted(tmp_path):
    write_run(tmp_path, GROUPS)
    newest = tmp_path / "checkpoints" / "last.ckpt"
    newest.parent.mkdir(exist_ok=True)
    newest.touch()
    evaluated = (tmp_path / "evaluation.json").stat().st_mtime
    for later, noted in ((-10, False), (10, True)):
        os.utime(newest, (evaluated + later,) * 2)
        assert ("its numbers are those of earlier weights" in _notes(tmp_path)) is noted


def test_lines_left_out_are_noted_with_their_number(tmp_path):
    write_run(tmp_path, GROUPS)
    path = tmp_path / "lifecycles" / "train.jsonl"
    first, *rest = path.read_text().splitlines()
    older = json.dumps(json.loads(first) | {"schema": 99})
    path.write_text("\n".join([older, *rest, "{", "{"]))
    notes = _notes(tmp_path)
    assert "train.jsonl: 1 line was left out, schema 99, not 4." in notes
    assert "train.jsonl: 2 lines were left out, torn or damaged." in notes
    assert len(report_data([tmp_path])[1]["lifecycles"]) == 3


@each("text", ["", "{", '{"suites": 3}', '{"suites": {"held_out": {}}}', "[]", '{"suites": {"a": {"controls": 3}}}'])
def test_a_damaged_evaluation_is_noted(tmp_path, text):
    write_run(tmp_path, GROUPS)
    (tmp_path / "evaluation.json").write_text(text)
    assert "evaluation.json" in _notes(tmp_path)


def test_an_evaluation_whose_parts_do_not_fit_is_noted(tmp_path):
    write_run(tmp_path, GROUPS)
    path = tmp_path / "evaluation.json"
    content = json.loads(path.read_text())
    content["suites"]["held_out"]["controls"] = {}
    path.write_text(json.dumps(content))
    assert "evaluation.json cannot be read" in _notes(tmp_path)


@each("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("")])
def test_a_folder_that_is_no_run_is_refused(tmp_path, make):
    make(tmp_path / "odd")
    with pytest.raises(ConfigError, match="expected the folder of a run") as caught:
        report_data([tmp_path / "odd"])
    assert caught.value.key == "report RUN_DIR"


@each("name", ["evaluation.json", "metrics.csv", "lifecycles/train.jsonl"])
@each("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)])
def test_what_is_no_file_is_missing_and_not_read_for_ever(tmp_path, name, make):
    folder = write_run(tmp_path, [group("a", [[True, False]])])
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    assert f"There {'are' if 'lifecycles' in name else 'is'} no " in _notes(folder)


def test_runs_side_by_side_share_panels(tmp_path):
    folders = [write_run(tmp_path / name / "mine", GROUPS) for name in "ab"]
    overview, lives = report_data(folders)
    assert [run["name"] for run in overview["runs"]] == ["a/mine", "b/mine"]
    lines = [one["line"] for one in overview["panels"][0]["lines"]]
    assert {(line.label.split(":")[0], line.colour) for line in lines} == {
        ("a/mine", "var(--c0)"),
        ("b/mine", "var(--c1)"),
    }
    assert [life["file"] for life in lives["lifecycles"]] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_of_a_run_with_more_lifecycles_than_are_read_whole_groups_are_taken_evenly_and_the_others_counted(tmp_path):
    write_run(tmp_path, varied_groups(40, 2, words=20), group_size=2)
    size = (tmp_path / "lifecycles" / "train.jsonl").stat().st_size
    shutil.copy(tmp_path / "lifecycles" / "train.jsonl", tmp_path / "lifecycles" / "validation.jsonl")
    whole, every = report_data([tmp_path], most_read=2 * size)
    overview, lives = report_data([tmp_path], most_read=size // 2)
    names = [pack["id"] for pack in lives["packs"]]
    assert names == [f"words/train/{number}" for number in range(0, 40, 4)] * 2
    assert all(len(life["episodes"]) == len(every["lifecycles"][0]["episodes"]) for life in lives["lifecycles"])
    assert [life["episodes"][0]["advantage"] for life in lives["lifecycles"]] == [
        life["episodes"][0]["advantage"] for life in every["lifecycles"] if life["group"] % 4 == 0
    ]
    assert whole["runs"][0]["notes"] == []
    assert [(file["shown"], file["lifecycles"]) for file in overview["files"]] == [(20, 80)] * 2
    said = "60 lines were left out, so that the report stays small (whole groups, taken evenly)."
    assert overview["runs"][0]["notes"] == [f"lifecycles/{name}.jsonl: {said}" for name in ("train", "validation")]


def quarter_of_a_gigabyte(folder):
    """MB of lifecycles that a run has, seconds that its report takes, and MiB that its process holds."""
    write_run(folder, varied_groups(50, 8, words=60), group_size=8)
    path, num = folder / "lifecycles" / "train.jsonl", 0
    lines = path.read_text()
    with path.open("w") as file:
        while file.tell() < 272e6:
            file.write(re.sub(r"words/train/(\d+)", rf"words/train/{num}.\1", lines))
            num += 1
    begun = time.perf_counter()
    code = "import resource, sys; from cod_lightning.commands.report import run; run(sys.argv[1:]); "
    code += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    return path.stat().st_size // 10**6, time.perf_counter() - begun, int(done.stdout.split()[-1])


@pytest.mark.soak
def test_a_report_of_a_quarter_of_a_gigabyte_takes_half_a_minute_and_half_a_gigabyte(tmp_path):
    megabytes, seconds, peak = quarter_of_a_gigabyte(tmp_path)
    print(f"{megabytes} MB, {seconds:.1f} s, {peak} MiB")
    assert seconds < 60
    assert peak < 700
