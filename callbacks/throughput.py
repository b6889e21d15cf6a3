"""Logs how long updates take, how many tokens that buys, and how old the weights were that sampled them."""

import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from cod_lightning.callbacks.runner import runner_of
from cod_lightning.ranks import gathered


class Throughput(Callback):
    """Logs seconds and tokens per second of every update: all ranks' tokens, the slowest rank's seconds.

    `time/train_s` is the span of `training_step`, its optimizer step included, and `throughput/trained_tokens_s` divides the
    tokens of the module's `last_update` by it. What the rollout took is logged with its rows (`RolloutStats.figures`).
    """

    def __init__(self) -> None:
        self._start = 0.0

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        seconds = time.perf_counter() - self._start
        values = {"time/train_s": seconds}
        update: Any = getattr(pl_module, "last_update", None)
        if update is not None:
            tokens = sum(gathered(update.num_tokens))
            values["time/train_s"] = slowest = max(gathered(seconds))
            values["throughput/trained_tokens_s"] = tokens / max(slowest, 1e-9)
        pl_module.log_dict(values, on_step=True, on_epoch=False, batch_size=1)


class Staleness(Callback):
    """Logs `train/staleness`, the largest over an update's rows on all ranks, and `train/staleness_mean`, over its action tokens.

    Counted in policy versions: syncs between the one whose weights sampled a row and the last one before the update. Updates of
    one rollout do not count, so it is 0 where every rollout is waited for (`data.max_staleness` 0).
    """

    def __init__(self) -> None:
        self._largest = self._mean = 0.0

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Before the update's own sync."""
        lags = runner_of(trainer).engine.policy_version - batch.policy_version
        own = batch.action_mask.sum(dim=1)
        parts = gathered((int(own.sum()), float((lags * own).sum()), float(lags.max()) if len(batch) else 0.0))
        tokens = sum(num for num, _, _ in parts)
        self._largest = max(largest for _, _, largest in parts)
        self._mean = sum(total for _, total, _ in parts) / max(1, tokens)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        values = {"train/staleness": self._largest, "train/staleness_mean": self._mean}
        pl_module.log_dict(values, on_step=True, on_epoch=False, batch_size=1)
