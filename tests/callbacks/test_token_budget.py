"""Runs end at a budget of sampled tokens, after the rollout that spends it."""

import csv
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lightning.pytorch.loggers import CSVLogger

from cod_lightning.callbacks.throughput import TokenBudget
from tests.cases import each
from tests.played_run import PlayedData, PlayedModule, trainer

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
