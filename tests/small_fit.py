"""A training that takes a second: words, a policy of one layer, one epoch of small rollouts, each made into updates."""

import lightning as L
import torch

from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.models import TinyPolicy
from cod_lightning.modules import GRPOModule
from tests.stubs import PlainContext, WordWorld


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
    """Keeps what each update trained on, and the logged values after it whose names begin so."""

    def __init__(self, begin="train/"):
        self.begin, self.batches, self.values = begin, [], []

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
    return RolloutDataModule(world or WordWorld(), PlainContext(), engine or TransformersEngine(), **(sizes | options))


def small_fit(folder, *callbacks, engine=None, world=None, lr=1e-2, mismatch=None, module=None, **sizes):
    """`Trainer.fit` with these callbacks; `sizes` are options of the DataModule, `module` further ones of the module."""
    torch.manual_seed(0)
    module = GRPOModule(small_policy(), lr=lr, mismatch=mismatch, **module or {})
    quiet_trainer(folder, *callbacks).fit(module, small_data(engine, world, **sizes))
