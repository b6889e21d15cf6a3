"""A training that takes a second: words, a policy of one layer, one epoch of small rollouts, each made into updates."""

from typing import Any, NamedTuple

import lightning as L
import torch

from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.models import TinyPolicy
from cod_lightning.modules import GRPOModule
from tests.credit_tables import kept_credit
from tests.stubs import Following, PlainContext, WordWorld


def quiet_trainer(folder, *callbacks, **options):
    """A Trainer on the CPU that writes, checks and shows nothing of its own; for one epoch unless `options` say otherwise."""
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    own = {"accelerator": "cpu", "num_sanity_val_steps": 0, "default_root_dir": folder, "callbacks": list(callbacks)}
    length = {} if "max_steps" in options else {"max_epochs": 1}
    return L.Trainer(**(quiet | own | length | options))


class Updates(L.Callback):
    """Keeps the groups that were trained on, the rows of each update, and the logged values after it whose names begin so."""

    def __init__(self, begin=""):
        self.begin, self.groups, self.batches, self.values = begin, [], [], []

    def setup(self, trainer, pl_module, stage):
        if isinstance(trainer.datamodule, RolloutDataModule):
            trainer.datamodule.runner.follow(Following(rollout_played=self.rollout_played))

    def rollout_played(self, label, groups):
        self.groups += groups if label == "train" else []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.batches.append(batch)
        logged = trainer.callback_metrics.items()
        self.values.append({name: float(value) for name, value in logged if name.startswith(self.begin)})


def small_policy():
    return TinyPolicy(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=32)


def small_data(engine=None, world=None, **options):
    """Rollouts of four packs in words, two updates of each; `options` say otherwise."""
    sizes = {"pack_size": 2, "group_size": 4, "packs_per_rollout": 4, "updates_per_rollout": 2, "val_packs": 2}
    sizes |= {"rollouts_per_epoch": 2, "max_new_tokens": 3}
    own = {"context": PlainContext(), "engine": engine or TransformersEngine()} | sizes
    return RolloutDataModule(world or WordWorld(), **(own | options))


class Fit(NamedTuple):
    """What was trained, on what, what its updates had, the Trainer, and the credit of each rollout."""

    module: GRPOModule
    data: RolloutDataModule
    updates: Updates
    trainer: L.Trainer
    credits: list[Any]


def small_fit(
    folder, *callbacks, data=None, lr=1e-2, module=None, trainer=None, ckpt_path=None, engine=None, world=None, **sizes
):
    """`Trainer.fit` with these callbacks; `module` and `trainer` are options of theirs, `sizes` of the DataModule."""
    torch.manual_seed(sizes.get("seed", 0))
    grpo, updates = GRPOModule(small_policy(), **{"lr": lr} | (module or {})), Updates()
    data, credits = data or small_data(engine, world, **sizes), kept_credit(grpo)
    fitted = quiet_trainer(folder, *callbacks, updates, **trainer or {})
    fitted.fit(grpo, data, ckpt_path=ckpt_path)
    return Fit(grpo, data, updates, fitted, credits)
