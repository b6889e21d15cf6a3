"""Real sweeps of tiny jobs: one that fails does not stop the others, finished ones are skipped, launchers give one answer."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from cod_lightning.reports.sweeps.record import JobRecord, read_jobs
from tests.command_line import cod

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SUITE = "{name: held_out, num_packs: 4, controls: [blanked_context], warm_start_temperatures: []}"
SMALL = [
    *("warm_start=null", "data.packs_per_rollout=4", "data.group_size=4", "data.updates_per_rollout=2"),
    *("data.rollouts_per_epoch=1", "data.val_packs=2", "trainer.max_epochs=-1", "sampled_token_budget=1000"),
    f"data.suites=[{SUITE}]",
]


def sweep(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return cod("sweep", "--config", "smoke", "--out", "out", *SMALL, *arguments, cwd=cwd, timeout=900)


def by_rate(root: Path) -> dict[str, tuple[Path, JobRecord]]:
    """Jobs by their last override."""
    return {record.overrides[-1]: (folder, record) for folder, record in read_jobs(root).items()}


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A cell that trains and one whose loss is not finite, with the basic launcher."""
    cwd = tmp_path_factory.mktemp("sweep")
    return cwd, sweep("model.lr=2e-3,1e30", cwd=cwd)


def test_a_job_that_fails_is_listed_and_the_others_are_compared(swept) -> None:
    cwd, done = swept
    assert done.returncode == 1, done.stdout + done.stderr
    found = by_rate(cwd / "out")
    assert found["model.lr=0.002"][1].finished, done.stdout
    said = str(found["model.lr=1e+30"][1].error)
    assert re.match(r"(NonFiniteLoss|EngineMismatch): ", said), "whichever notices first"
    errors = [line for line in done.stderr.splitlines() if line.startswith("error")]
    assert errors[0].startswith(f"error: smoke model.lr=1e+30 seed=1: {said}")
    assert errors[-1] == "error: 1 of 2 jobs are not finished"
    (sweep_record,) = json.loads((cwd / "out" / "sweep_results.json").read_text())["sweeps"]
    (cell,) = sweep_record["cells"]
    assert cell["seeds"] == [1]
    assert f"model.lr=1e+30, seed 1, is not finished, and not in the figures: {said}" in sweep_record["notes"]


def test_a_run_stops_with_the_rollout_that_spends_its_budget_and_is_validated_and_kept(swept) -> None:
    cwd, _ = swept
    folder, _ = by_rate(cwd / "out")["model.lr=0.002"]
    (cell,) = json.loads((cwd / "out" / "sweep_results.json").read_text())["sweeps"][0]["cells"]
    cost = cell["cost"]
    rollouts = cost["updates"] / 2
    assert rollouts >= 2
    assert cost["sampled_tokens"] >= 1000 > cost["sampled_tokens"] * (rollouts - 1) / rollouts * 0.8
    assert cost["trained_tokens"] > 0
    assert (folder / "checkpoints" / "last.ckpt").is_file()


def test_finished_jobs_are_skipped_and_joblib_runs_the_rest_beside_each_other(swept) -> None:
    cwd, _ = swept
    before = {folder: (folder / "job.json").stat().st_mtime_ns for folder in read_jobs(cwd / "out")}
    done = sweep("model.lr=2e-3,4e-3", "--launcher", "joblib", cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 jobs: 1 finished before, 1 to run" in done.stdout
    assert "[1/1] smoke model.lr=0.004 seed=1: finished" in done.stdout
    assert re.search(r"^model\.lr=0\.004 +1 +\d\.\d", done.stdout, re.MULTILINE)
    assert all((folder / "job.json").stat().st_mtime_ns == when for folder, when in before.items())
    sweep_record = json.loads((cwd / "out" / "sweep_results.json").read_text())["sweeps"][0]
    assert [cell["label"] for cell in sweep_record["cells"]] == ["model.lr=0.002", "model.lr=0.004"]
    assert sweep_record["cells"][1]["minus_reference"]["mean"]["n"] == 4
