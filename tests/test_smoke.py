"""Smoke trainings through the command line, as a user types them. Minutes, so part of `.ci/run` only."""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cod_lightning.rollout.transcript import load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[1]


def cod(*arguments, cwd, cache, timeout=600):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COD_LIGHTNING_CACHE": str(cache)}
    command = [sys.executable, "-m", "cod_lightning", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory, cache):
    """The smoke run from an empty cache, its folder and its seconds."""
    folder = tmp_path_factory.mktemp("smoke")
    begun = time.perf_counter()
    done = cod("fit", "--config", "smoke", cwd=folder, cache=cache)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "runs" / "smoke", time.perf_counter() - begun, done.stdout + done.stderr


def rows(folder):
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def untimed(row):
    return {k: v for k, v in row.items() if not k.startswith(("time/", "throughput/"))}


def test_success_rises_by_a_quarter_on_held_out_packs_in_under_90_seconds(smoke):
    folder, seconds, _ = smoke
    suite = json.loads((folder / "evaluation.json").read_text())["suites"]["held_out"]
    assert suite["cod_gain"] >= 0.25
    assert seconds < 90


def test_hiding_the_context_takes_the_gain_away(smoke):
    suite = json.loads((smoke[0] / "evaluation.json").read_text())["suites"]["held_out"]
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


SHORT = ("--trainer.max_epochs", "1", "--data.rollouts_per_epoch", "3", "--data.suites", "null")


@pytest.mark.parametrize("extra", [(), ("--model.token_budget", "700")])
def test_the_same_seed_gives_the_same_metrics(smoke, cache, tmp_path, extra):
    found = []
    for name, more in (("a", ()), ("b", extra)):
        root = ("--trainer.default_root_dir", str(tmp_path / name))
        done = cod("fit", "--config", "smoke", *SHORT, *root, *more, cwd=tmp_path, cache=cache)
        assert done.returncode == 0, done.stderr[-3000:]
        found.append([untimed(row) for row in rows(tmp_path / name)])
    if not extra:
        assert found[0] == found[1]
    for one, other in zip(*found, strict=True):
        for key, value in one.items():
            assert (value == "") == (other[key] == "")
            # 1e-4 relative: AdamW's first steps divide rounding by rounding, and a gradient norm shows it first
            assert not value or float(value) == pytest.approx(float(other[key]), rel=1e-4, abs=1e-5), key


def test_a_checkpoint_is_tested_and_gone_on_from(smoke, cache, tmp_path):
    checkpoint = ("--ckpt_path", str(smoke[0] / "checkpoints" / "last.ckpt"))
    tested = cod("test", "--config", "smoke", "--trainer.default_root_dir", "t", *checkpoint, cwd=tmp_path, cache=cache)
    assert tested.returncode == 0, tested.stderr[-3000:]
    again, first = (
        json.loads((folder / "evaluation.json").read_text())["suites"]["held_out"]["cod_gain"]
        for folder in (tmp_path / "t", smoke[0])
    )
    assert abs(again - first) < 0.06  # other sampling noise: the policy version differs
    more = ("--trainer.max_epochs", "4", "--data.suites", "null", "--trainer.default_root_dir", "more")
    resumed = cod("fit", "--config", "smoke", *more, *checkpoint, cwd=tmp_path, cache=cache)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert min(int(row["epoch"]) for row in rows(tmp_path / "more")) == 3


def test_several_checkpoints_are_tested_on_named_suites_beside_the_run_s_own_results(smoke, cache, tmp_path):
    first, second = smoke[0] / "checkpoints" / "last.ckpt", tmp_path / "copy.ckpt"
    second.write_bytes(first.read_bytes())
    suites = [
        {"name": "loop", "num_packs": 32, "wrap": "ralph_loop"},
        {"name": "long", "num_packs": 32, "pack_size": 9},
    ]
    (tmp_path / "mine.yaml").write_text(json.dumps(suites))
    chosen = ("--ckpt_paths", f"[{first},{second}]", "--suites", "[mine.yaml]", "--trainer.default_root_dir", "t")
    done = cod("test", "--config", "smoke", *chosen, cwd=tmp_path, cache=cache)
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads((tmp_path / "t" / "evaluation.json").read_text())
    assert results["suites"] == {}
    one, other = (results["checkpoints"][str(path)] for path in (first, second))
    assert list(one) == ["loop", "long"]
    assert one["loop"]["positions"] == other["loop"]["positions"]
    assert {"warm_start", "oracle", "blanked_context"} <= one["long"]["controls"].keys()


@pytest.mark.parametrize("command", ["validate", "predict"])
def test_a_checkpoint_plays_the_validation_packs(command, smoke, cache, tmp_path):
    checkpoint = ("--ckpt_path", str(smoke[0] / "checkpoints" / "last.ckpt"))
    root = ("--trainer.default_root_dir", "played")
    done = cod(command, "--config", "smoke", *root, *checkpoint, cwd=tmp_path, cache=cache)
    assert done.returncode == 0, done.stderr[-3000:]
    recorded = list((tmp_path / "played" / "lifecycles").glob("*.jsonl"))
    assert len(recorded) == 1
    assert len(load(recorded[0].read_text().splitlines())) == 256
    assert (command == "predict") == recorded[0].with_name("predict.parquet").is_file()


def readme_commands():
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.S)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("python -m cod_lightning")]


@pytest.mark.parametrize("command", readme_commands())
def test_a_command_of_the_readme_parses_and_builds(command, smoke, cache, tmp_path):
    arguments = shlex.split(command)[3:]
    (tmp_path / "mine.yaml").write_text("model: {lr: 0.5}\n")
    (tmp_path / "runs").mkdir()
    for name in ("quickstart", "smoke"):
        (tmp_path / "runs" / name).symlink_to(smoke[0])
    plain = arguments[0] in ("worlds", "play", "references")
    if arguments[0] == "sweep":
        arguments.append("--print_jobs")
    elif not plain and "--help" not in arguments and "--print_config" not in arguments:
        arguments.append("--print_config")
    done = cod(*arguments, cwd=tmp_path, cache=cache)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout
