"""Keys of `trainer`, settled and checked before anything is built: flags, devices, and how a run is spread over processes."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed import DistNetworkError, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from cod_lightning.errors import ConfigError, Stopped

_LAST_WORDS_S = 5.0
"""For a rank to end by itself, once the first one has failed."""
_LOOPBACK, _GLOO = "127.0.0.1", "GLOO_SOCKET_IFNAME"
_OURS: dict[str, tuple[tuple[object, ...], str]] = {
    "gradient_clip_val": ((None,), "Set model.gradient_clip_val."),
    "gradient_clip_algorithm": ((None,), "Set model.gradient_clip_val."),
    "accumulate_grad_batches": ((1,), "Set model.token_budget for memory, data.packs_per_rollout for batch size."),
    "overfit_batches": ((0,), "trainer.limit_train_batches shortens an epoch; data.source says what is played again."),
    "limit_test_batches": ((None, 1.0), "Set num_packs and controls in data.suites."),
}
"""Keys of the Trainer that do what the module or the data does itself: the values that are left, and the remedy."""
_LENGTHS = {"fit": ("max_epochs", "max_steps", "limit_train_batches"), "validate": ("limit_val_batches",)}


def check_trainer(trainer: Any, action: str | None) -> None:
    """Refuse keys of `trainer` for what the module does itself, runs that keep nothing, float16, zeros that Lightning divides by,
    lengths of 0, and nodes that nothing starts."""
    for key, (left, remedy) in _OURS.items():
        if trainer[key] not in left:
            expected = f"{left[0]}, since the module or the data does this itself"
            raise ConfigError(f"trainer.{key}", trainer[key], expected, remedy)
    if trainer.fast_dev_run:
        expected = "False, since with it Lightning keeps no metrics and no checkpoint"
        remedy = "Try --config smoke, or trainer.max_steps=1."
        raise ConfigError("trainer.fast_dev_run", trainer.fast_dev_run, expected, remedy)
    if str(value := trainer.precision) in ("16", "16-mixed", "16-true"):
        expected = "one without float16, whose gradients need a scale that the module's clipping does not know"
        raise ConfigError("trainer.precision", value, expected, "Choose bf16-mixed, or leave it out.")
    divisors = ("val_check_interval", "check_val_every_n_epoch", "log_every_n_steps")
    for key in (*divisors, *_LENGTHS.get(action or "", ())):
        if trainer[key] == 0:
            remedy = "`test` plays a policy untrained; trainer.limit_val_batches=0 leaves validation out."
            raise ConfigError(f"trainer.{key}", trainer[key], "above 0", remedy)
    if action and trainer.num_nodes > 1 and not _placed():  # this process would wait for the others without a word
        expected = "1, or MASTER_ADDR, MASTER_PORT and NODE_RANK in the environment"
        raise ConfigError("trainer.num_nodes", trainer.num_nodes, expected, "Start every node by torchrun or srun.")
    tasks = os.environ.get("SLURM_NTASKS", "1")
    of_slurm = not TorchElasticEnvironment.detect() and SLURMEnvironment.detect()
    if of_slurm and tasks not in ("0", "1") and "SLURM_NTASKS_PER_NODE" not in os.environ:
        expected = "1, or SLURM_NTASKS_PER_NODE beside it, by which Lightning counts ranks"
        raise ConfigError("SLURM_NTASKS", tasks, expected, "Do srun with --ntasks-per-node, or unset SLURM_NTASKS.")


def settle_strategy(trainer: Any) -> None:
    """Fill in the device mesh of FSDP2 where it is left open, and refuse one that is none, in the keys of `trainer`.

    FSDP1 and DeepSpeed are refused: they know no clipping of gradients, or no module that optimises by itself.
    """
    strategy = trainer.strategy
    name = str(getattr(strategy, "class_path", strategy))
    if any(other in name.lower() for other in ("fsdp", "deepspeed")):
        raise ConfigError("trainer.strategy", name, "ddp or FSDP2", "Choose strategy=fsdp2.")
    if not getattr(strategy, "class_path", "").endswith("ModelParallelStrategy"):
        return
    sizes, key = strategy.init_args, "trainer.strategy.tensor_parallel_size"
    if (split := sizes.tensor_parallel_size) not in ("auto", 1):
        raise ConfigError(key, split, "1, since the policy's layers are sharded and not split", "Leave it out.")
    sizes.tensor_parallel_size = 1  # by itself Lightning would split every layer over the devices of a node
    if sizes.data_parallel_size == "auto":
        sizes.data_parallel_size = num_processes(trainer)


def check_started(trainer: Any) -> None:
    """Refuse environment variables that give this process a rank which the run lacks, since it would write nothing down."""
    ranks = num_processes(trainer)
    for name, most in (("LOCAL_RANK", ranks // max(1, trainer.num_nodes)), ("RANK", ranks), ("SLURM_PROCID", ranks)):
        if int(rank := os.environ.get(name, "0")) >= most:
            sizes = f"trainer.devices={trainer.devices} and trainer.num_nodes={trainer.num_nodes}"
            expected = f"below {most}, since {sizes}"
            remedy = f"Raise trainer.devices, or unset {name}: without it Lightning starts the ranks itself."
            raise ConfigError(name, rank, expected, remedy)


def _placed() -> bool:
    """Whether something that started this process says where processes meet."""
    return not {"MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "SLURM_PROCID"}.isdisjoint(os.environ)


@contextmanager
def on_loopback(trainer: Any) -> Iterator[None]:
    """Where all processes of the run are on this machine and Lightning starts them, have them meet where no other machine can.

    torch's own store listens on all addresses; a second one of this process for the same port is the one that is there.
    """
    if _placed() or trainer.num_nodes != 1 or num_processes(trainer) == 1:
        yield
        return
    with socket.create_server((_LOOPBACK, 0)) as server:
        port, own = server.getsockname()[1], server.detach()
    store = TCPStore(_LOOPBACK, port, is_master=True, wait_for_workers=False, multi_tenant=True, master_listen_fd=own)
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    settings = {"MASTER_ADDR": _LOOPBACK, "MASTER_PORT": str(port)}
    if loopback is not None and _GLOO not in os.environ:
        settings[_GLOO] = loopback
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            os.environ.pop(name, None)
        del store


@contextmanager
def ending_together(trainer: Trainer) -> Iterator[None]:
    """Where this process fails, end the ranks that it has started, some of which may wait for it without end.

    Raises `ConfigError` where another process has the port at which they were to meet.
    """
    try:
        yield
    except Stopped:  # all ranks have agreed to
        raise
    except BaseException as error:
        started: list[Popen[bytes]] = getattr(trainer.strategy.launcher, "procs", [])
        ranks = list(started)
        started.clear()  # Lightning's observer would kill this process for what comes next
        for rank in ranks:
            try:
                rank.wait(_LAST_WORDS_S)
            except TimeoutExpired:
                rank.kill()
        if isinstance(error, DistNetworkError) and "EADDRINUSE" in str(error):
            remedy = "Name another one; where all ranks are on this machine, leave it out."
            port = os.environ.get("MASTER_PORT")
            raise ConfigError("MASTER_PORT", port, "a free port, at which the ranks meet", remedy) from error
        raise


def check_shards(path: str, strategy: Any) -> None:
    """Refuse to train on from shards with a strategy that does not share them out; everything else reads them as well."""
    if Path(path).is_dir() and not isinstance(strategy, ModelParallelStrategy):
        expected = "a checkpoint in one file, or a strategy that shards, since this one holds shards of the optimizer"
        raise ConfigError("ckpt_path", path, expected, "Choose strategy=fsdp2.")


def num_processes(trainer: Any) -> int:
    """Processes of the run, by the keys of `trainer`; where `devices` leaves it open, one for each GPU that is here."""
    devices = trainer.devices
    if isinstance(devices, list | tuple):
        number = len(devices)
    elif str(devices).isdecimal():
        number = int(devices)
    else:
        number = max(1, 0 if trainer.accelerator == "cpu" else torch.cuda.device_count())
    return number * max(1, trainer.num_nodes)
