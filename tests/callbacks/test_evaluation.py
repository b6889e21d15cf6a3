"""The callback that writes an evaluation down."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pyarrow.parquet as pq
import pytest

from cod_lightning.callbacks import Evaluation
from cod_lightning.errors import DataError
from cod_lightning.evaluation import results
from cod_lightning.evaluation.suite import Suite
from tests.cases import each
from tests.played import play


@each(
    ("name", "content"),
    [
        ("evaluation.json", '{"suites": {"a"'),
        ("evaluation.json", '{"suites": {}, "more": NaN}'),
        ("evaluation_packs.parquet", "x"),
    ],
)
def test_a_file_that_cannot_be_added_to_is_refused_before_anything_is_played(
    tmp_path: Path, name: str, content: str
) -> None:
    trainer: Any = SimpleNamespace(is_global_zero=True, default_root_dir=str(tmp_path))
    Evaluation().on_test_start(trainer, L.LightningModule())
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=name):
        Evaluation().on_test_start(trainer, L.LightningModule())
    trained = Evaluation()
    trained.on_train_start(trainer, L.LightningModule())
    trained.on_test_start(trainer, L.LightningModule())  # nothing is added to what earlier weights played


@each(("trains", "left"), [(True, ["b"]), (False, ["a", "b"])])
def test_a_run_that_trained_on_leaves_no_suite_that_earlier_weights_played(
    tmp_path: Path, trains: bool, left: list[str]
) -> None:
    trainer: Any = SimpleNamespace(is_global_zero=True, default_root_dir=str(tmp_path), ckpt_path=None)
    for name in ("a", "b"):
        callback = Evaluation()
        if trains:
            callback.on_train_start(trainer, L.LightningModule())
        for one in play(Suite(name=name), ["trained"]):
            callback.on_test_batch_end(trainer, L.LightningModule(), None, one, 0)
        callback.on_test_end(trainer, L.LightningModule())
    assert list(results.read_results(tmp_path / "evaluation.json")["suites"]) == left
    assert sorted(set(pq.read_table(tmp_path / "evaluation_packs.parquet")["suite"].to_pylist())) == left


def test_a_checkpoint_whose_path_is_no_unicode_is_written_down_and_read_again(tmp_path: Path) -> None:
    trainer: Any = SimpleNamespace(is_global_zero=True, default_root_dir=str(tmp_path), ckpt_path="caf\udce9/last.ckpt")
    callback = Evaluation()
    for one in play(Suite(name="a"), ["trained"]):
        callback.on_test_batch_end(trainer, L.LightningModule(), None, one, 0)
    callback.on_test_end(trainer, L.LightningModule())
    Evaluation().on_test_start(trainer, L.LightningModule())
    assert results.read_results(tmp_path / "evaluation.json")["suites"]["a"]["checkpoint"] == "caf\ufffd/last.ckpt"
