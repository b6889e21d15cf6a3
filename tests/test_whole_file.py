"""Files that commands write into folders of others."""

import logging
import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest

from cod_lightning.callbacks.checkpoints import RunConfig
from cod_lightning.callbacks.loggers import MetricsFile
from cod_lightning.callbacks.transcripts import FaultFile, LogprobWriter
from cod_lightning.cli import main
from cod_lightning.files import write_whole
from cod_lightning.rollout import transcript
from tests.cases import each
from tests.records import group
from tests.reports.made_runs import write_run


def test_a_file_is_there_as_a_whole_and_a_failure_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "new" / "file"
    write_whole(path, "one")
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()

    def fails(*_):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, "two")
    assert path.read_text() == "one"
    assert [one.name for one in path.parent.iterdir()] == ["file"]


def _umask():
    now = os.umask(0)
    os.umask(now)
    return now


def test_a_link_is_replaced_and_a_pipe_is_written_to(tmp_path):
    (tmp_path / "precious").write_text("precious")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "precious")
    write_whole(link, b"mine")
    assert (link.read_text(), (tmp_path / "precious").read_text()) == ("mine", "precious")
    os.mkfifo(tmp_path / "pipe")
    link.unlink()
    link.symlink_to(tmp_path / "pipe")  # as to a disk
    write_whole(link, b"mine")
    assert (link.is_symlink(), link.read_text()) == (False, "mine")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_whole(tmp_path / "pipe", "shown")
    reader.join()
    assert read == ["shown"]


def test_what_a_run_adds_to_its_folder_goes_through_none_of_its_links(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    names = ("test_a_trained.jsonl", "faults.log", "metrics.csv.writing", "config.yaml")
    for name in names:
        (tmp_path / name).symlink_to(precious)
    lines, faults, metrics, config = (tmp_path / name for name in names)
    played = group("a", [[True, False], [False, True]])
    for append in (False, True):
        transcript.write(lines, [played], append=append)
    FaultFile(faults).handle(logging.makeLogRecord({"msg": "it raised"}))
    (tmp_path / "metrics.csv").write_text("step,a\n0,1\n")
    written = MetricsFile(tmp_path, resumed_at=1)
    written.log_metrics({"a": 2.0}, step=1)
    written.save()
    trainer: Any = SimpleNamespace(is_global_zero=True, global_rank=0, default_root_dir=tmp_path, ckpt_path="x")
    (tmp_path / "lifecycles").mkdir()
    (logprobs := tmp_path / "lifecycles" / "train_logprobs.jsonl").symlink_to(precious)
    LogprobWriter(trainer).begin()
    assert not logprobs.is_symlink()
    RunConfig("model: {}\n", tmp_path).on_train_start(trainer, L.LightningModule())
    assert precious.read_text() == "precious"
    assert [len(transcript.read(lines)), faults.read_text(), config.read_text()] == [2, "it raised\n\n", "model: {}\n"]
    assert (tmp_path / "metrics.csv").read_text().splitlines()[-1] == "2.0,1"
    assert not metrics.exists()


@pytest.mark.slow
@each("name", ["lifecycles", "checkpoints"])
def test_a_link_of_a_foreign_run_into_another_run_is_refused(tmp_path, capsys, name):
    run, own = (write_run(tmp_path / one, [group("a", [[True, False], [False, True]])]) for one in ("run", "own"))
    (own / "checkpoints").mkdir()
    shutil.rmtree(run / "lifecycles")
    (run / name).symlink_to(Path("..", "own", name))
    words = ["test", "--config", "smoke", "--warm_start", "null", "--trainer.default_root_dir", str(run)]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {run / name} is a link to {own / name}; ")
    assert said.strip().endswith("Remove it.")
