"""Training steps of this project, one for every line on standard input; what `bench_end_to_end.py` drives.

PYTHONPATH=. python examples/studies/speed/our_steps.py --model FOLDER --turns 6 --threads 2 [--per_turn]
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from msgspec import structs

from cod_lightning.callbacks import Throughput, WeightSync
from cod_lightning.callbacks.loggers import MetricsFile
from cod_lightning.commands.lightning_cli import quieten
from cod_lightning.contexts import HintContext
from cod_lightning.datamodules.rollout import RolloutDataModule
from cod_lightning.models import TinyPolicy
from cod_lightning.modules.grpo import GRPOModule
from cod_lightning.rollout.runner import RolloutObserver
from cod_lightning.training.rollouts import TrainingRollouts
from cod_lightning.types import Episode, Group, Pack
from examples.studies.speed.fixed_work import Endless, FixedWork, Scale


def apart(episode: Episode) -> Episode:
    """The same episode as one training sample a turn, each with the whole prompt before it."""
    history: tuple[int, ...] = ()
    turns = []
    for turn in episode.turns:
        history += turn.new_ids
        turns.append(structs.replace(turn, new_ids=history, extends=False))
        history += turn.action_ids
    return structs.replace(episode, turns=tuple(turns))


def per_turn(self: TrainingRollouts, packs: Sequence[Pack]) -> list[Group]:
    """One training sample a turn, as in the reference implementation; the rollout is ours."""

    def cut(group: Group) -> Group:
        lives = (structs.replace(life, episodes=tuple(apart(e) for e in life.episodes)) for life in group.lifecycles)
        return structs.replace(group, lifecycles=tuple(lives))

    return [cut(group) for group in _play(self, packs)]


_play = TrainingRollouts.play


class Commanded(L.Callback, RolloutObserver):
    """Waits for a line before every rollout, and says afterwards where the time went."""

    def __init__(self, data: RolloutDataModule, num_episodes: int) -> None:
        data.runner.follow(self)
        self.data, self.num_episodes, self.begun = data, num_episodes, 0.0

    def update_begins(self) -> None:
        """Wait, or end where the input has ended."""
        print(json.dumps({"ready": True}), flush=True)
        if not sys.stdin.readline().strip():
            sys.exit()
        self.begun = time.perf_counter()

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.rolled_out = time.perf_counter()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        now = time.perf_counter()
        played = batch.figures
        print(
            json.dumps(
                {
                    "seconds": now - self.begun,
                    "generation_s": played["time/rollout_s"],
                    "training_s": now - self.rolled_out,
                    "episodes": self.num_episodes,
                    "sampled_tokens": round(played["throughput/generated_tokens_s"] * played["time/rollout_s"]),
                    "trained_tokens": pl_module.last_update.num_tokens,
                }
            ),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="where metrics.csv goes")
    parser.add_argument("--per_turn", action="store_true")
    args = parser.parse_args()
    quieten()
    torch.set_num_threads(args.threads)
    L.seed_everything(1, verbose=False)
    scale = Scale(**json.loads((args.model / "fixed_work.json").read_text())["scale"])
    if args.per_turn:
        TrainingRollouts.play = per_turn
    data = RolloutDataModule(
        env=FixedWork(args.turns, scale.observation_words),
        context=HintContext(protocol="compact"),
        engine=Endless(),
        group_size=scale.siblings,
        packs_per_rollout=scale.packs,
        updates_per_rollout=1,
        rollouts_per_epoch=1_000,
        max_new_tokens=scale.tokens,
    )
    data.pack_size = data.packs.pack_size = (
        1  # solve episodes only; users are refused that, since nothing would reward a context
    )
    policy = TinyPolicy(**scale.sizes, weights=str(args.model))
    module = GRPOModule(policy=policy, lr=1e-5, reweight=None, token_budget=scale.token_budget)
    trainer = L.Trainer(
        accelerator="cpu",
        precision="32-true" if scale.dtype == "float32" else "bf16-true",
        logger=MetricsFile(args.out, None),
        log_every_n_steps=1,
        max_epochs=1,
        callbacks=[WeightSync(), Throughput(), Commanded(data, scale.packs * scale.siblings)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, datamodule=data)


if __name__ == "__main__":
    main()
