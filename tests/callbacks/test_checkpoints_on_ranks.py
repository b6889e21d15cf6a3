"""Checkpoints and signals on two ranks, with DDP and with shards (FSDP2), by gloo."""

import os
import resource
import signal
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

from cod_lightning.callbacks.checkpoints import RunCheckpoint
from cod_lightning.callbacks.stop_signals import StopSignals
from cod_lightning.checkpoints.checkpoint import damage
from cod_lightning.errors import SaveFailed, Stopped
from cod_lightning.rollout.runner import RolloutRunner
from cod_lightning.training.stream import Sealed, TrainStream
from tests.forked import on_two_ranks
from tests.stubs import FunctionEngine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class Large(L.LightningModule):
    """A layer of 10,000 weights, which FSDP2 puts half on each rank."""

    def __init__(self, sharded: bool) -> None:
        super().__init__()
        self.sharded = sharded
        self.layer: Any = None
        self.tell_at = -1

    def configure_model(self) -> None:
        if self.layer is None:
            torch.manual_seed(1)
            self.layer = torch.nn.Linear(100, 100)
            if self.sharded:
                fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, batch_idx):
        if self.global_step == self.tell_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return self.layer(torch.full((2, 100), 1.0 + self.global_rank)).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


@dataclass
class Rows:
    """Rows of a rollout that are not read."""

    updates_left: int = 0
    rollouts_left: int = 0

    def of_episodes(self, entries: Any) -> "Rows":
        return self


class Updates(L.LightningDataModule):
    """Two updates of every rollout, which is given up on a signal."""

    def __init__(self) -> None:
        super().__init__()
        rollout: Any = SimpleNamespace(batch=Rows(), shares=[[0], [1]], num_packs=2)
        self.runner = RolloutRunner(FunctionEngine(lambda _: (2,)))
        self.stream = TrainStream(lambda number, first_pack: rollout, 2, 2, self.runner)

    def train_dataloader(self):
        return self.stream

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        return batch.item if isinstance(batch, Sealed) else batch


def trained(root: Path, kind: str, epochs: int, ckpt_path: Path | None = None, tell_at: int = -1) -> Large:
    warnings.simplefilter("ignore")
    strategy: Any = DDPStrategy(process_group_backend="gloo")
    if kind == "shards":
        strategy = ModelParallelStrategy(2, 1, process_group_backend="gloo")
    checkpoint = RunCheckpoint(root, every=1)
    callbacks: Any = [checkpoint, StopSignals(checkpoint)]
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    trainer = L.Trainer(
        max_epochs=epochs, devices=2, strategy=strategy, callbacks=callbacks, default_root_dir=root, **quiet
    )
    module = Large(kind == "shards")
    module.tell_at = tell_at
    trainer.fit(module, Updates(), ckpt_path=ckpt_path)
    return module


def weights(module: Large) -> list[float]:
    local = getattr(module.layer.weight, "_local_tensor", module.layer.weight)
    return [float(local.detach().double().sum()), float(local.detach().double().square().sum())]


@pytest.mark.parametrize("kind", ["file", "shards"])
def test_told_on_one_rank_both_stop_after_the_same_update_and_go_on_as_if_nothing_had_been(kind, tmp_path):
    def whole(rank: int) -> str:
        return str(weights(trained(tmp_path / "whole", kind, 2)))

    def stopped(rank: int) -> str:
        try:
            trained(tmp_path / "run", kind, 2, tell_at=4 if rank == 1 else -1)
        except Stopped as stop:
            return f"{stop.code} {stop.message}"
        return "never"

    last = tmp_path / "run" / "checkpoints" / "last.ckpt"

    def resumed(rank: int) -> str:
        return str(weights(trained(tmp_path / "run", kind, 2, ckpt_path=last)))

    expected = on_two_ranks(tmp_path, whole, grouped=False)
    message = f"Stopped by SIGTERM after update 5. To go on: the same command with --ckpt_path {last}"
    assert on_two_ranks(tmp_path, stopped, grouped=False) == [f"143 {message}", "143 "]
    assert (last.is_dir(), damage(last)) == (kind == "shards", None)
    assert sorted(path.name for path in last.parent.iterdir()) == [
        "last.ckpt",
        "update-00000004.ckpt",
        "update-00000005.ckpt",
    ]
    assert on_two_ranks(tmp_path, resumed, grouped=False) == expected
    assert expected[0].startswith("[")


@pytest.mark.parametrize("kind", ["file", "shards"])
@pytest.mark.parametrize("full", [0, 1])
def test_no_room_on_one_rank_ends_both_and_leaves_the_checkpoint_of_before(kind, full, tmp_path):
    """With DDP rank 1 writes nothing, and so does not notice."""

    def act(rank: int) -> str:
        trained(tmp_path / "run", kind, 1)
        if rank == full:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        try:
            trained(tmp_path / "run", kind, 2, ckpt_path=last)
        except SaveFailed as error:
            return str(error)
        return "saved"

    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    said = on_two_ranks(tmp_path, act, grouped=False)
    if (kind, full) == ("file", 1):
        assert said == ["saved", "saved"]
    else:
        assert all(text.startswith(f"no checkpoint could be written in {last.parent} (") for text in said), said
        assert last.readlink().name == "update-00000004.ckpt"
    assert damage(last) is None
