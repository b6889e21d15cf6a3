"""Where the time goes."""

import csv
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger

from callbacks.throughput import Throughput
from tests.played_run import Items, PlayedData, PlayedModule, trainer


def rows(folder: Path, data: L.LightningDataModule) -> list[dict[str, str]]:
    run = trainer(folder, [Throughput()], logger=CSVLogger(str(folder), name="", version=""))
    run.fit(PlayedModule(), data)
    with (folder / "metrics.csv").open() as file:
        return [row for row in csv.DictReader(file) if row.get("time/train_s")]


def test_every_update_logs_seconds_and_tokens_of_its_rollout_and_of_itself(tmp_path: Path) -> None:
    logged = rows(tmp_path, PlayedData())
    assert len(logged) == 8
    for row in logged:
        tokens = float(row["throughput/trained_tokens_s"]) * float(row["time/train_s"])
        assert round(tokens) == 50
        tokens = float(row["throughput/generated_tokens_s"]) * float(row["time/rollout_s"])
        assert round(tokens) == 6 * 2 * 5 * 2  # packs, siblings, episodes, tokens
        assert (row["rollout/token_drift"], row["rollout/num_failed"]) == ("0.0", "0.0")
    assert logged[0]["time/rollout_s"] == logged[1]["time/rollout_s"] != logged[2]["time/rollout_s"]


def test_an_engine_that_counts_what_it_had_of_prompts_is_logged_with_the_share_of_that_rollout(tmp_path: Path) -> None:
    data = PlayedData()
    assert "rollout/cached_share" not in rows(tmp_path / "plain", data)[0]

    begin, engine = data.runner.monitor.begin, data.runner.engine

    def sampled(label: str, *more: int) -> None:
        begin(label, *more)
        engine.num_prompt_tokens += 200
        engine.num_cached_tokens += 150 if label == "train" else 0

    data.runner.monitor.begin = sampled
    assert {row["rollout/cached_share"] for row in rows(tmp_path / "counted", data)} == {"0.75"}


def test_a_datamodule_that_rolls_nothing_out_is_left_alone(tmp_path: Path) -> None:
    class Recorded(L.LightningDataModule):
        def train_dataloader(self) -> Items:
            return Items(lambda: iter([torch.zeros(1)]), 1)

    logged = rows(tmp_path, Recorded())
    assert logged
    assert "time/rollout_s" not in logged[0]
