"""Smoke trainings through the command line, as a user types them. Minutes, so part of `.ci/run` only."""

import json
import os
import time

import pytest

from cod_lightning.rollout.transcript import load
from tests.command_line import cod, rows
from tests.speed import slowness

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def _of_children() -> float:
    """Seconds that processors worked for processes which this one started: other tests run beside these."""
    spent = os.times()
    return spent.children_user + spent.children_system


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory, cache):
    """The smoke run from an empty cache, its folder and its seconds on one core, as on a machine of 3 GHz."""
    folder = tmp_path_factory.mktemp("smoke")
    slow, begun = slowness(time.process_time), _of_children()
    done = cod("fit", "--config", "smoke", "--torch_threads", "1", cwd=folder, cache=cache, fresh=True)
    assert done.returncode == 0, done.stderr[-3000:]
    seconds = _of_children() - begun
    return folder / "runs" / "smoke", seconds / max(slow, slowness(time.process_time)), done.stdout + done.stderr


def test_success_rises_by_a_quarter_on_held_out_packs_in_under_90_seconds_and_not_without_the_context(smoke):
    folder, seconds, _ = smoke
    suite = json.loads((folder / "evaluation.json").read_text())["suites"]["held_out"]
    assert suite["cod_gain"] >= 0.25
    assert seconds < 90
    first = suite["positions"][0]["success"]
    assert max(abs(p["success"] - first) for p in suite["controls"]["blanked_context"]) < 0.10


def test_a_run_leaves_what_the_readme_says(smoke):
    folder, _, printed = smoke
    for name in ("config.yaml", "metrics.csv", "checkpoints/last.ckpt", "evaluation.json", "tensorboard", "lifecycles"):
        assert (folder / name).exists(), name
    assert "success by position" in printed
    assert {p.name for p in (folder / "lifecycles").glob("*.jsonl")} >= {"train.jsonl", "validation.jsonl"}


def test_every_metric_with_a_fixed_name_is_there(smoke):
    columns = set(rows(smoke[0])[0])
    positions = range(4)
    wanted = {f"train/reward/position_{k}" for k in positions} | {f"val/reward/position_{k}" for k in positions}
    wanted |= {f"val/success/position_{k}" for k in positions}
    wanted |= {"val/cod_gain", "val/context_parse_rate", "train/logprob_gap", "train/clip_fraction", "train/entropy"}
    wanted |= {"train/red_temperature", "time/rollout_s", "time/train_s", "rollout/token_drift"}
    wanted |= {"throughput/generated_tokens_s", "throughput/trained_tokens_s"}
    assert wanted <= columns


def test_drift_is_zero_and_the_log_prob_gap_tiny_in_every_update(smoke):
    found = rows(smoke[0])
    assert {row["rollout/token_drift"] for row in found} <= {"", "0.0"}
    gaps = [float(row["train/logprob_gap"]) for row in found if row["train/logprob_gap"]]
    assert gaps
    assert max(gaps) <= 1e-4


def test_recorded_lifecycles_are_read_back_whole(smoke):
    for name in ("train", "validation"):
        groups = load((smoke[0] / "lifecycles" / f"{name}.jsonl").read_text().splitlines())
        assert groups
        assert all(len(x.episodes) == 7 for group in groups for x in group.lifecycles)
