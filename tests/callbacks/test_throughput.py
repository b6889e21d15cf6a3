"""Where the time goes, and how far behind the weights were that sampled what an update trains on."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from cod_lightning.callbacks import throughput
from cod_lightning.callbacks.throughput import Throughput, _staleness
from tests.cases import each
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


def test_of_several_ranks_all_tokens_count_and_the_slowest_one_s_seconds(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(throughput, "gathered", lambda own: [own, (own[0], 1000.0, *own[2:])])
    for row in rows(tmp_path, PlayedData()):
        assert float(row["time/train_s"]) == 1000
        assert float(row["throughput/trained_tokens_s"]) == pytest.approx(0.1)


def test_a_datamodule_that_rolls_nothing_out_is_left_alone(tmp_path: Path) -> None:
    class Recorded(L.LightningDataModule):
        def train_dataloader(self) -> Items:
            return Items(lambda: iter([torch.zeros(1)]), 1)

    assert rows(tmp_path, Recorded())


@each(("versions", "num_tokens"), [([3, 4, 5, 2], [1, 6, 2, 3]), ([], [])])
def test_the_mean_staleness_weighs_every_row_by_its_action_tokens(versions, num_tokens):
    masks = torch.arange(6)[None] < torch.tensor(num_tokens, dtype=torch.long)[:, None]
    rows: Any = SimpleNamespace(policy_version=torch.tensor(versions, dtype=torch.long), action_mask=masks)
    lags = [5 - version for version, num in zip(versions, num_tokens, strict=True) for _ in range(num)] or [0]
    assert _staleness(rows, 5) == {"train/staleness": float(max(lags)), "train/staleness_mean": sum(lags) / len(lags)}
