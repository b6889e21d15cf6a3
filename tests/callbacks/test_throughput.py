"""Where the time goes."""

import csv
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger

from cod_lightning.callbacks.throughput import Throughput
from tests.played_run import Items, PlayedData, PlayedModule, trainer


def rows(folder: Path, data: L.LightningDataModule) -> list[dict[str, str]]:
    run = trainer(folder, [Throughput()], logger=CSVLogger(str(folder), name="", version=""))
    run.fit(PlayedModule(), data)
    with (folder / "metrics.csv").open() as file:
        return [row for row in csv.DictReader(file) if row.get("time/train_s")]


def test_every_update_logs_its_seconds_and_tokens(tmp_path: Path) -> None:
    logged = rows(tmp_path, PlayedData())
    assert len(logged) == 8
    for row in logged:
        tokens = float(row["throughput/trained_tokens_s"]) * float(row["time/train_s"])
        assert round(tokens) == 50


def test_a_datamodule_that_rolls_nothing_out_is_left_alone(tmp_path: Path) -> None:
    class Recorded(L.LightningDataModule):
        def train_dataloader(self) -> Items:
            return Items(lambda: iter([torch.zeros(1)]), 1)

    assert rows(tmp_path, Recorded())
