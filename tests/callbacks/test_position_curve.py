"""What TensorBoard gets to see."""

from pathlib import Path

import pytest
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cod_lightning.callbacks.loggers import PositionCurve
from tests.played_run import PlayedData, PlayedModule, trainer


def test_tensorboard_gets_charts_by_position(tmp_path: Path) -> None:
    logger = TensorBoardLogger(str(tmp_path), name="", version="tensorboard")
    trainer(tmp_path, [PositionCurve()], logger=logger).fit(PlayedModule(), PlayedData())
    logger.experiment.flush()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert len(events.Tensors("custom_scalars__config__")) == 1


@pytest.mark.parametrize("logger", ["none", "csv"])
def test_without_tensorboard_nothing_happens(tmp_path: Path, logger: str) -> None:
    chosen = CSVLogger(str(tmp_path)) if logger == "csv" else False
    trainer(tmp_path, [PositionCurve()], logger=chosen).fit(PlayedModule(), PlayedData())
    assert not list(tmp_path.rglob("events*"))
