"""metrics.csv of a run that was killed, and TensorBoard's folder."""

import csv
import os

import pytest

from cod_lightning.callbacks.loggers import Events, MetricsFile, rows_before
from cod_lightning.errors import DataError


def test_a_torn_last_row_of_the_metrics_does_not_count(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("a,step,b\n1,0,2\n1,1,2\n1,2,2\n1,")
    assert rows_before(path, 2) == [{"a": "1", "step": step, "b": "2"} for step in "01"]
    path.write_text("")
    assert rows_before(path, 2) == []
    path.write_text(f"step,a\n0,1\nx,1\n-,1\n{'9' * 5000},1\n1,2\n")
    assert rows_before(path, 2) == [{"step": "0", "a": "1"}, {"step": "1", "a": "2"}]
    for damaged in (b"step,a\n0,\xff\n", b"step,a\n0," + b"x" * 200_000):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="Move it away"):
            rows_before(path, 2)


@pytest.fixture
def begun(tmp_path):
    logger = MetricsFile(tmp_path, None)
    for step in range(3):
        logger.log_metrics({"loss": 0.5 * step}, step)
    logger.save()
    return tmp_path


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_at_every_moment_of_a_resume_the_rows_of_before_are_on_disk(begun, monkeypatch):
    seen, replace = [], os.replace

    def looking(*args):
        seen.append(len(rows(begun)))
        replace(*args)
        seen.append(len(rows(begun)))

    monkeypatch.setattr(os, "replace", looking)
    logger = MetricsFile(begun, 2)
    seen.append(len(rows(begun)))
    logger.log_metrics({"loss": 9.0}, 2)
    logger.save()
    logger.log_metrics({"val/success": 0.5}, 2)  # a new column: the file is written anew
    logger.save()
    assert seen == [3, 3, 3, 3, 4]
    assert [row["step"] for row in rows(begun)] == ["0", "1", "2", "2"]
    assert [row["val/success"] for row in rows(begun)] == ["", "", "", "0.5"]


def test_a_file_that_was_moved_away_begins_anew(tmp_path):
    logger = MetricsFile(tmp_path, None)
    for step in range(2):
        logger.log_metrics({"loss": 0.5}, step)
        logger.save()
        assert rows(tmp_path) == [{"loss": "0.5", "step": str(step)}]
        logger.path.unlink()


def test_a_new_run_begins_the_file_anew(begun):
    logger = MetricsFile(begun, None)
    logger.log_metrics({"other": 1.0}, 0)
    logger.save()
    assert rows(begun) == [{"other": "1.0", "step": "0"}]


@pytest.mark.parametrize("resumed_at", [None, 1])
def test_a_run_that_ends_before_its_first_row_leaves_the_file_as_it_was(begun, resumed_at):
    before = (begun / "metrics.csv").read_bytes()
    logger = MetricsFile(begun, resumed_at)
    logger.log_hyperparams({"seed": 1})
    logger.save()
    assert (begun / "metrics.csv").read_bytes() == before


def test_tensorboards_folder_has_events_and_no_empty_file_beside_them(tmp_path):
    logger = Events(tmp_path, None)
    logger.log_metrics({"loss": 0.5}, 0)
    logger.save()
    logger.finalize("success")
    (found,) = (tmp_path / "tensorboard").iterdir()
    assert found.name.startswith("events.out.tfevents")
