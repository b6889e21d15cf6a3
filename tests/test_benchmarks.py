"""A benchmark in its smallest form; what it says of speed is for `make bench`, which runs each of them on a quiet machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.studies.speed.results import tables_of

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "examples" / "studies" / "speed"
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.soak
def test_a_peer_that_does_not_start_is_named_and_the_rest_is_reported():
    command = [
        sys.executable,
        str(BENCHMARKS / "bench_end_to_end.py"),
        *("--turns", "2", "--repeats", "1", "--threads", "1"),
        "--trl",
        "/nowhere",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=HERE, check=True)
    ours, apart, *theirs = tables_of(done.stdout)["end to end"]["rows"]
    assert ours["seconds"] > 0
    assert apart["times_ours"]["median"] > 0
    assert ours["sampled_tokens_episode"] == apart["sampled_tokens_episode"] == 2 * 4
    assert ours["trained_tokens_episode"] < apart["trained_tokens_episode"]
    assert theirs
    assert all(row["what"].startswith("TRL") and "/nowhere" in row["failed"] for row in theirs)
    assert not any("times_ours" in row for row in theirs)
