"""The Parquet file of a rollout."""

import os
from pathlib import Path
from typing import Any

import pytest

from cod_lightning.callbacks.transcripts import LifecycleTable, Transcripts
from cod_lightning.rollout.transcript import read
from tests.lifecycle_tables import read_lifecycles
from tests.played_run import Items, PlayedData, PlayedModule, trainer


class PredictData(PlayedData):
    """Predicts in two items of eight lifecycles."""

    def predict_dataloader(self) -> Any:
        return Items(lambda: (self.roll("predict", 8, 1) for _ in range(2)), 2)


class PredictModule(PlayedModule):
    def predict_step(self, groups: Any, batch_idx: int) -> int:
        return len(groups)


def predict(folder: Path, **data: Any) -> None:
    trainer(folder, [Transcripts(), LifecycleTable()]).predict(
        PredictModule(), PredictData(**data), return_predictions=False
    )


def test_predict_writes_the_same_lifecycles_as_json_lines_and_as_parquet(tmp_path: Path) -> None:
    for _ in range(2):  # the second replaces what the first left
        predict(tmp_path)
    lines = [one for group in read(tmp_path / "lifecycles" / "predict.jsonl") for one in group.lifecycles]
    assert list(read_lifecycles(tmp_path / "lifecycles" / "predict.parquet")) == lines
    assert len(lines) == 16


def test_a_broken_rollout_leaves_the_earlier_file_and_no_draft(tmp_path: Path) -> None:
    predict(tmp_path)
    path = tmp_path / "lifecycles" / "predict.parquet"
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="the rollout is broken"):
        predict(tmp_path, raise_in="predict")
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path / "lifecycles")) == ["predict.jsonl", "predict.parquet"]


def test_other_rollouts_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    table = LifecycleTable(labels=["validation"])
    trainer(tmp_path, [table]).fit(PlayedModule(), PlayedData())
    assert os.listdir(tmp_path / "lifecycles") == ["validation.parquet"]
    assert len(list(read_lifecycles(tmp_path / "lifecycles" / "validation.parquet"))) == 2 * 8


def test_a_training_leaves_no_table_unless_it_is_asked_for(tmp_path: Path) -> None:
    trainer(tmp_path, [LifecycleTable()]).fit(PlayedModule(), PlayedData())
    assert not (tmp_path / "lifecycles").exists()
