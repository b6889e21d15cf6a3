"""Logs what updates cost: seconds, tokens, the age of the weights that sampled them; and ends a run once a budget is spent."""

import time
from collections.abc import Sequence
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from cod_lightning.callbacks.runner import RolloutCallback, runner_of
from cod_lightning.objective.batch import Batch
from cod_lightning.ranges import Count
from cod_lightning.ranks import gathered
from cod_lightning.types import Group


class Throughput(Callback):
    """Logs seconds, tokens per second and staleness of every update: all ranks' tokens, the slowest rank's seconds.

    `time/train_s` is the span of `training_step`, its optimizer step included, and `throughput/trained_tokens_s` divides the
    tokens of the module's `last_update` by it. What the rollout took is logged with its rows (`RolloutStats.figures`).

    `train/staleness` is the largest over the update's rows, `train/staleness_mean` that over its action tokens, in policy versions:
    syncs between the one whose weights sampled a row and the last one before the update. Updates of one rollout do not count, nor
    do replayed rows (`replay/age`), so it is 0 where every rollout is waited for (`data.max_staleness` 0).
    """

    def __init__(self) -> None:
        self._start = 0.0
        self._staleness: dict[str, float] = {}

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Before the update's own sync."""
        if isinstance(batch, Batch):
            self._staleness = _staleness(batch, runner_of(trainer).engine.policy_version)
        self._start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        seconds = time.perf_counter() - self._start
        values = {"time/train_s": seconds, **self._staleness}
        update: Any = getattr(pl_module, "last_update", None)
        if update is not None:
            tokens, spans = zip(*gathered((update.num_tokens, seconds)), strict=True)
            values["time/train_s"] = slowest = max(spans)
            values["throughput/trained_tokens_s"] = sum(tokens) / max(slowest, 1e-9)
        pl_module.log_dict(values, on_step=True, on_epoch=False, batch_size=1)


def _staleness(rows: Batch, policy_version: int) -> dict[str, float]:
    """Of all ranks' rows that are not replayed."""
    new = ~rows.is_replayed
    lags, own = policy_version - rows.policy_version[new], rows.action_mask[new].sum(dim=1)
    parts = gathered((int(own.sum()), float((lags * own).sum()), float(lags.max()) if len(lags) else 0.0))
    mean = sum(total for _, total, _ in parts) / max(1, sum(num for num, _, _ in parts))
    return {"train/staleness": max(largest for _, _, largest in parts), "train/staleness_mean": mean}


class TokenBudget(RolloutCallback):
    """Logs `tokens/sampled` and `tokens/trained`, running totals over all ranks, and stops at a budget of sampled tokens.

    Sampled are all tokens of training rollouts that the policy generated (`RolloutStats.num_generated_tokens`), trained those
    that went through forward and backward, padding excluded, once for each update. A rollout that has begun is trained on to
    its end and none is begun once the budget is spent, so a run ends less than one rollout above it. The learning rate falls
    with the share that is spent, in place of the share of `trainer.max_epochs`.

    Args:
        max_sampled: The budget; null counts only.
    """

    def __init__(self, max_sampled: Count | None = None) -> None:
        self.max_sampled = max_sampled
        self.num_sampled = 0
        self.num_trained = 0
        self._updates_left = 0
        """Of the rollout that is trained on."""
        self._new = 0
        """Tokens of this rank that were sampled since the last update."""

    def share_spent(self) -> float:
        """Of the budget, in [0, 1]."""
        return 0.0 if self.max_sampled is None else min(1.0, self.num_sampled / self.max_sampled)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        super().setup(trainer, pl_module, stage)
        if self.max_sampled is not None:
            pl_module.progress = self.share_spent  # pyright: ignore

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """A resumed run that had spent its budget has nothing left to do."""
        self._stop_if_spent(trainer)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        update = getattr(pl_module, "last_update", None)
        self._updates_left = getattr(batch, "updates_left", 0)
        own = [self._new, 0 if update is None else update.num_tokens]
        sampled, trained = map(sum, zip(*gathered(own), strict=True))
        self._new = 0
        self.num_sampled += sampled
        self.num_trained += trained
        for name, value in (("tokens/sampled", self.num_sampled), ("tokens/trained", self.num_trained)):
            pl_module.log(name, float(value), on_step=True, on_epoch=False, batch_size=1)
        self._stop_if_spent(trainer)

    def state_dict(self) -> dict[str, Any]:
        return {"num_sampled": self.num_sampled, "num_trained": self.num_trained, "updates_left": self._updates_left}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_sampled, self.num_trained = state_dict["num_sampled"], state_dict["num_trained"]
        self._updates_left = state_dict["updates_left"]

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        if label == "train":
            lives = (life for group in groups for life in group.lifecycles)
            self._new += sum(episode.num_action_tokens for life in lives for episode in life.episodes)

    def _stop_if_spent(self, trainer: L.Trainer) -> None:
        if self.share_spent() >= 1 and not self._updates_left:
            trainer.should_stop = True
