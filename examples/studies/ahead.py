"""How long training stands still by how far rollouts are ahead of it, where nothing but waiting takes time.

    PYTHONPATH=. python examples/studies/ahead.py --out docs/results/ahead.json

The engine's server (`tests.vllm_server`) answers a turn after a time that is drawn with a long tail, however many are in flight,
and an update sleeps. So each has a device of its own, and what is left is the order of things. Not in it: prompts that are computed
anew after weights have changed in flight, and memory. Bounds above 1 change weights in flight.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from cod_lightning.callbacks.throughput import Throughput
from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.datamodules.rollout import RolloutDataModule
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.models import TinyPolicy
from cod_lightning.modules.grpo import GRPOModule
from tests.small_fit import quiet_trainer
from tests.stubs import PlainContext, WordWorld
from tests.vllm_server import FakeVLLM

BOUNDS = (0, 1, 2, 4)
MEDIAN_S, SPREAD = 0.06, 1.0
"""Of a turn's lognormal time."""
UPDATE_S = 2.5
NUM_ROLLOUTS, FIRST = 16, 6
"""Rollouts of a run, and the first one that is counted."""


class LongTailed(FakeVLLM):
    """Takes its time for a turn."""

    @property
    def after_s(self) -> float:
        return random.lognormvariate(0.0, SPREAD) * MEDIAN_S

    @after_s.setter
    def after_s(self, value: float) -> None:
        pass


class Takes(Callback):
    """Makes an update take that long, and notes what it logs."""

    def __init__(self, update_s: float) -> None:
        self.update_s = update_s
        self.rows: list[dict[str, float]] = []
        self.ends: list[float] = []

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        time.sleep(self.update_s)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.ends.append(time.perf_counter())
        self.rows.append({name: float(value) for name, value in trainer.callback_metrics.items()})


def measured(bound: int, update_s: float, seed: int) -> dict[str, float]:
    """Means over the rollouts of a run."""
    random.seed(seed)
    L.seed_everything(seed, verbose=False)
    server = LongTailed()
    takes = Takes(update_s)
    data = RolloutDataModule(
        WordWorld(max_turns=2),
        PlainContext(),
        VLLMServerEngine(urls=[server.url]),
        **{"pack_size": 3, "group_size": 4, "packs_per_rollout": 4, "updates_per_rollout": 1, "max_new_tokens": 3},
        rollouts_per_epoch=NUM_ROLLOUTS,
        val_packs=1,
        max_staleness=bound,
        seed=seed,
    )
    policy = TinyPolicy(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=32)
    callbacks = (Throughput(), WeightSync(self_test=None), takes)
    with tempfile.TemporaryDirectory() as folder:
        quiet_trainer(folder, *callbacks, limit_val_batches=0).fit(GRPOModule(policy), data)
    server.die()
    rows = takes.rows[FIRST:]

    def mean(name: str) -> float:
        return statistics.mean(row.get(name, 0.0) for row in rows)

    return {
        "step_s": (takes.ends[-1] - takes.ends[FIRST - 1]) / (NUM_ROLLOUTS - FIRST),
        "rollout_s": mean("time/rollout_s"),
        "wait_s": mean("time/wait_s") if bound else mean("time/rollout_s"),
        "staleness": mean("train/staleness"),
        "staleness_mean": mean("train/staleness_mean"),
        "interrupted_turns": mean("rollout/num_interrupted_turns"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    by_seed = [[measured(bound, UPDATE_S, seed) for bound in BOUNDS] for seed in args.seeds]
    runs = dict(zip(BOUNDS, zip(*by_seed, strict=True), strict=True))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"update_s": UPDATE_S, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
