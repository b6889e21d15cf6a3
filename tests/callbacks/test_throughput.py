"""Where the time goes, how far behind the weights were that sampled, and budgets of sampled tokens."""

import csv
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from cod_lightning.callbacks import Notes, WeightSync, throughput
from cod_lightning.callbacks.throughput import Throughput, TokenBudget, _staleness
from cod_lightning.commands.lightning_cli import with_house
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


class OwnSync(WeightSync):
    """A sync of a user's."""


@each("own", [WeightSync(self_test=None), OwnSync()])
def test_a_sync_that_the_config_names_comes_behind_the_clock_of_an_update_as_the_usual_one_does(own) -> None:
    mine = L.Callback()
    found = with_house([own, mine], [Throughput(), WeightSync(), Notes()])
    assert found[0] is mine
    assert found[2] is own
    assert [type(one) for one in found[1:]] == [Throughput, type(own), Notes]


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
def test_the_mean_staleness_weighs_every_row_that_is_not_replayed_by_its_action_tokens(versions, num_tokens):
    num_old = 2
    masks = torch.arange(6)[None] < torch.tensor([*num_tokens, *[6] * num_old], dtype=torch.long)[:, None]
    is_replayed = torch.arange(len(masks)) >= len(versions)
    policy_version = torch.tensor([*versions, *[0] * num_old], dtype=torch.long)
    rows: Any = SimpleNamespace(policy_version=policy_version, action_mask=masks, is_replayed=is_replayed)
    lags = [5 - version for version, num in zip(versions, num_tokens, strict=True) for _ in range(num)] or [0]
    assert _staleness(rows, 5) == {"train/staleness": float(max(lags)), "train/staleness_mean": sum(lags) / len(lags)}


ROLLOUT = 6 * 2 * 5 * 2
"""Tokens of a rollout: packs, siblings, episodes, tokens."""


class TwoUpdates(PlayedData):
    """Says, as rows do, whether updates of a rollout are still to come."""

    def _train(self) -> Iterator[Any]:
        for at, _ in enumerate(super()._train()):
            yield SimpleNamespace(updates_left=1 - at % 2)


def run(folder: Path, budget: TokenBudget, epochs: int = 4) -> tuple[list[dict[str, str]], PlayedModule]:
    fitted, module = trainer(folder, [budget], logger=CSVLogger(str(folder), name="", version="")), PlayedModule()
    fitted.fit_loop.max_epochs = epochs
    fitted.fit(module, TwoUpdates())
    with (folder / "metrics.csv").open() as file:
        return [row for row in csv.DictReader(file) if row.get("tokens/sampled")], module


def test_every_update_logs_running_totals(tmp_path: Path) -> None:
    rows, _ = run(tmp_path, TokenBudget(), epochs=2)
    assert [float(row["tokens/sampled"]) / ROLLOUT for row in rows] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert [float(row["tokens/trained"]) for row in rows] == [50.0 * n for n in range(1, 9)]


@each(("budget", "rollouts"), [(1, 1), (ROLLOUT, 1), (ROLLOUT + 1, 2), (3 * ROLLOUT, 3)])
def test_the_rollout_that_spends_the_budget_is_trained_on_and_no_other_begins(
    budget: int, rollouts: int, tmp_path: Path
) -> None:
    rows, _ = run(tmp_path, TokenBudget(budget))
    assert len(rows) == 2 * rollouts
    assert float(rows[-1]["tokens/sampled"]) == rollouts * ROLLOUT


def test_the_module_is_told_the_share_that_is_spent(tmp_path: Path) -> None:
    budget = TokenBudget(4 * ROLLOUT)
    _, module = run(tmp_path, budget)
    assert module.progress() == 1.0
    budget.load_state_dict({"num_sampled": ROLLOUT, "num_trained": 50, "updates_left": 0})
    assert module.progress() == 0.25


def test_a_run_that_had_spent_its_budget_does_nothing_more(tmp_path: Path) -> None:
    budget = TokenBudget(ROLLOUT)
    budget.load_state_dict({"num_sampled": ROLLOUT, "num_trained": 100, "updates_left": 0})
    module = PlayedModule()
    trainer(tmp_path, [budget]).fit(module, TwoUpdates())
    assert module.last_update is None


def test_a_run_that_was_stopped_in_the_rollout_that_spent_the_budget_trains_on_it_to_its_end(tmp_path: Path) -> None:
    budget, other, module = TokenBudget(ROLLOUT), TokenBudget(ROLLOUT), PlayedModule()
    fitted = trainer(tmp_path, [budget])
    fitted.fit_loop.epoch_loop.max_steps = 1
    fitted.fit(PlayedModule(), TwoUpdates())
    other.load_state_dict(budget.state_dict())
    trainer(tmp_path, [other]).fit(module, TwoUpdates())
    assert module.last_update is not None
