"""How far behind the weights were that sampled what an update trains on."""

from types import SimpleNamespace
from typing import Any

import torch

from cod_lightning.callbacks.throughput import Staleness
from cod_lightning.rollout.runner import RolloutRunner


class Rows:
    """What the callback looks at of a batch."""

    def __init__(self, versions: list[int], num_tokens: list[int]) -> None:
        self.policy_version = torch.tensor(versions, dtype=torch.long)
        self.action_mask = torch.arange(6)[None] < torch.tensor(num_tokens, dtype=torch.long)[:, None]

    def __len__(self) -> int:
        return len(self.policy_version)


def logged(rows: Rows, policy_version: int) -> dict[str, float]:
    found: dict[str, float] = {}
    engine: Any = SimpleNamespace(policy_version=policy_version)
    trainer: Any = SimpleNamespace(datamodule=SimpleNamespace(runner=RolloutRunner(engine)))
    module: Any = SimpleNamespace(log_dict=lambda values, **_: found.update(values))
    callback = Staleness()
    callback.on_train_batch_start(trainer, module, rows, 0)
    engine.policy_version += 1  # the sync after the update does not count
    callback.on_train_batch_end(trainer, module, None, rows, 0)
    return found


def test_the_mean_weighs_every_row_by_its_action_tokens():
    versions, num_tokens = [3, 4, 5, 2], [1, 6, 2, 3]
    lags = [5 - version for version, num in zip(versions, num_tokens, strict=True) for _ in range(num)]
    found = logged(Rows(versions, num_tokens), 5)
    assert found == {"train/staleness": 3.0, "train/staleness_mean": sum(lags) / len(lags)}


def test_an_update_without_rows_is_not_behind():
    assert logged(Rows([], []), 5) == {"train/staleness": 0.0, "train/staleness_mean": 0.0}
