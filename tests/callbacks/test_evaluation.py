"""The callback that writes an evaluation down."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest

from cod_lightning.callbacks import Evaluation
from cod_lightning.errors import DataError
from tests.cases import each


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
