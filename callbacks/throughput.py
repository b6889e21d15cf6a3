"""Logs where the time of a training step goes, how many tokens it buys, and how old the weights were that sampled them."""

import time
from dataclasses import replace
from functools import reduce
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from callbacks.runner import find_runner, runner_of
from cod_lightning.ranks import gathered
from cod_lightning.rollout.stats import RolloutStats


class Throughput(Callback):
    """Logs seconds and tokens per second of the latest rollout and of every update: all ranks' tokens, the slowest rank's seconds.

    `time/rollout_s`, `throughput/generated_tokens_s`, `rollout/token_drift`, `rollout/num_failed`, `rollout/num_lost_groups`,
    `rollout/num_rewritten`, for faults that occurred `faults/NAME` (lifecycles lost to it), the figures of `data.source`
    (`source/NAME`) and, with `data.rewards`, the means `train/reward/PART/position_N` of solve episodes and
    `train/update_reward/PART/position_N` of updates, and of an engine that counts it the share of prompt tokens which it had from
    earlier turns and other dialogues (`rollout/cached_share`), and of one that takes weights in flight the turns in which they
    changed (`rollout/num_interrupted_turns`), are those of the latest rollout and repeat until the next one.
    `time/train_s` is the span of `training_step`, its optimizer step included, and `throughput/trained_tokens_s` divides the
    tokens of the module's `last_update` by it.
    With `data.max_staleness` a rollout goes on beside updates, and `time/wait_s` is for how long training stood still for it.
    The costs of what a rollout may do besides repeat too: `train/resampled_packs`, played in place of packs without signal, and
    their share of all packs played; `rollout/num_attempts` and `rollout/attempt_tokens` of `data.anchors` and
    `data.counterfactual`, and `time/attempts_s`, the rollout's seconds by their share of its tokens.
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
        for name, value in (values | _rollout_values(trainer)).items():
            pl_module.log(name, value, on_step=True, on_epoch=False, batch_size=1)


def _rollout_values(trainer: L.Trainer) -> dict[str, float]:
    runner = find_runner(trainer)
    if runner is None or runner.last_rollout is None:
        return {}
    parts = gathered(runner.last_rollout)  # counts add up; the rollout took as long as its slowest rank
    rollout = replace(reduce(RolloutStats.__add__, parts), seconds=max(part.seconds for part in parts))
    return {
        **({} if runner.waited_s is None else {"time/wait_s": max(gathered(runner.waited_s))}),
        "time/rollout_s": rollout.seconds,
        "throughput/generated_tokens_s": rollout.num_generated_tokens / max(rollout.seconds, 1e-9),
        "rollout/token_drift": float(rollout.token_drift),
        "rollout/num_failed": float(rollout.num_failed),
        "rollout/num_rewritten": float(rollout.num_rewritten),
        "train/resampled_packs": float(rollout.num_replacements),
        "train/resampled_share": rollout.num_replacements / max(1, rollout.num_packs),
        "rollout/num_attempts": float(rollout.num_attempts),
        "rollout/attempt_tokens": float(rollout.num_attempt_tokens),
        "time/attempts_s": rollout.seconds * rollout.attempt_share,
        "rollout/num_lost_groups": float(rollout.num_lost_groups),
        **({"rollout/num_interrupted_turns": rollout.num_interrupted_turns} if runner.engine.in_flight else {}),
        **({} if rollout.cached_share is None else {"rollout/cached_share": rollout.cached_share}),
        **{f"faults/{name}": float(count) for name, count in rollout.faults.items()},
        **{f"train/{name}": total / count for name, (total, count) in rollout.parts.items()},
        **runner.source_metrics,
        **runner.replay_metrics,
    }


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
