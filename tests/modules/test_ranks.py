"""One, two and four ranks, with DDP and with FSDP2: the same gradients, metrics and weights from the same lifecycles."""

from functools import partial
from pathlib import Path

import lightning as L
import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch.distributed.tensor import DTensor

from callbacks import Throughput, WeightSync
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.models import TinyPolicy
from cod_lightning.objective.losses import REC, ClipCov, KLCov
from cod_lightning.rollout import transcript
from modules.grpo import GRPOModule
from tests.forked import on_ranks
from tests.recorded_rollouts import RecordedRollouts
from tests.stubs import PlainContext, WordWorld

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
NUM_UPDATES = 4


class Recorder(L.Callback):
    """Whole gradients and logged values of every update, the packs it trained on, and the weights at the end."""

    def __init__(self):
        self.gradients, self.values, self.packs, self.weights = [], [], [], {}

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.gradients.append({name: whole(p.grad) for name, p in pl_module.model.named_parameters()})

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.values.append({k: float(v) for k, v in trainer.callback_metrics.items() if not timed(k)})
        self.packs.append(sorted(set(batch.episode_index[:, 0].tolist())))

    def on_train_end(self, trainer, pl_module):
        self.weights = {name: whole(p.detach()) for name, p in pl_module.model.named_parameters()}


def whole(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).clone()


def timed(name):
    return name.startswith(("time/", "throughput/"))


def strategy(name, number):
    if name == "fsdp2":
        return ModelParallelStrategy(data_parallel_size=number, tensor_parallel_size=1, process_group_backend="gloo")
    return DDPStrategy(process_group_backend="gloo") if number > 1 else "auto"


def fit(name, number, folder, recorded=None, max_steps=NUM_UPDATES, **module):
    L.seed_everything(3, verbose=False)
    policy = TinyPolicy(hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, intermediate_size=32)
    sizes = {"pack_size": 2, "group_size": 4, "packs_per_rollout": 8, "updates_per_rollout": 2, "rollouts_per_epoch": 2}
    data = RecordedRollouts(WordWorld(), PlainContext(), TransformersEngine(), **sizes, val_packs=5, max_new_tokens=3)
    data.recorded = recorded
    recorder = Recorder()
    trainer = L.Trainer(
        strategy=strategy(name, number),
        devices=number,
        max_steps=max_steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[WeightSync(), Throughput(), recorder],
        default_root_dir=folder,
        num_sanity_val_steps=0,
    )
    trainer.fit(GRPOModule(policy, **({"lr": 1e-3, "token_budget": 100, "gradient_clip_val": None} | module)), data)
    return recorder.gradients, recorder.values, recorder.packs, recorder.weights


