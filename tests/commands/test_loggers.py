"""Loggers that a config names write beside the run's own."""

import csv

import pytest

from tests.forked_fit import fit, metrics, said

pytestmark = pytest.mark.slow


def test_loggers_of_the_config_get_what_the_runs_own_get(tmp_path):
    folder = tmp_path / "run"
    named = '[{"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": "%s", "name": "own"}}]'
    short = ("--trainer.max_epochs", "1", "--data.updates_per_rollout", "1")
    assert fit(folder, *short, "--trainer.logger", named % tmp_path) == 0, said(folder)
    (theirs,) = (tmp_path / "own").rglob("metrics.csv")
    with theirs.open(newline="") as file:
        rows = list(csv.DictReader(file))
    ours = metrics(folder)
    for key in ("train/gradient_norm", "rollout/token_drift", "val/success/position_0"):
        found = [row[key] for row in rows if row.get(key)]
        assert found
        assert found == [row[key] for row in ours if row.get(key)]
    assert list((folder / "tensorboard").iterdir())
