"""Keys of `trainer`, settled and checked before anything is built: flags, devices, and how a run is spread over processes."""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import AcceleratorRegistry
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed import DistNetworkError, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from cod_lightning.errors import ConfigError, Stopped, did_you_mean

_SIZES = "trainer.strategy.init_args"
_LAST_WORDS_S = 5.0
"""For a rank to end by itself, once the first one has failed."""
_LOOPBACK, _GLOO = "127.0.0.1", "GLOO_SOCKET_IFNAME"


_NO_CLIPPING = "null, since the module clips itself", "Set model.gradient_clip_val."
_TAKEN: dict[str, tuple[tuple[object, ...], str, str]] = {
    "gradient_clip_val": ((None,), *_NO_CLIPPING),
    "gradient_clip_algorithm": ((None,), *_NO_CLIPPING),
    "accumulate_grad_batches": (
        (1,),
        "1, since a batch is an optimizer update and the module splits it",
        "Set model.token_budget for memory, data.packs_per_rollout and data.updates_per_rollout for batch size.",
    ),
    "overfit_batches": (
        (0,),
        "0, since every rollout is sampled anew and validation has packs of its own",
        "trainer.limit_train_batches shortens an epoch; data.source chooses what is played again.",
    ),
    "fast_dev_run": (
        (False,),
        "false, since it leaves out checkpoints and logs, which what comes after training reads",
        "Try --config smoke, or trainer.max_steps=1.",
    ),
    "limit_test_batches": (
        (None, 1.0),
        "null, since each condition of a suite is one batch and is played whole",
        "Set num_packs and controls in data.suites.",
    ),
}
"""Keys of the Trainer that do what the module or the data does itself: the values that are left, why, and the remedy."""


def refuse_trainer_flags(trainer: Any) -> None:
    """Refuse what the Trainer offers and the module does itself, and intervals of zero, which Lightning divides by."""
    for key, (taken, expected, remedy) in _TAKEN.items():
        if trainer[key] not in taken:
            raise ConfigError(f"trainer.{key}", trainer[key], expected, remedy)
    if str(value := trainer.precision) in ("16", "16-mixed", "16-true"):
        expected = "one without float16, whose gradients need a scale that the module's clipping does not know"
        raise ConfigError("trainer.precision", value, expected, "Choose bf16-mixed, or leave it out.")
    for key in ("val_check_interval", "check_val_every_n_epoch", "log_every_n_steps"):
        if (value := trainer[key]) == 0 or (key != "val_check_interval" and value is not None and value < 0):
            raise ConfigError(f"trainer.{key}", value, "above 0", "trainer.limit_val_batches=0 leaves validation out.")


_OF_A_COMMAND = {
    "fit": ("max_epochs", "max_steps", "limit_train_batches"),
    "validate": ("limit_val_batches",),
    "test": (),
    "predict": ("limit_predict_batches",),
}


def check_lengths(trainer: Any, subcommand: str) -> None:
    """Refuse a command that would do nothing (a `fit` without updates would call the policy trained), and a least above a most."""
    for key in _OF_A_COMMAND[subcommand]:
        if trainer[key] == 0:
            remedy = "`test` plays a policy without training it." if subcommand == "fit" else "1.0 plays all."
            raise ConfigError(f"trainer.{key}", trainer[key], "above 0", remedy)
    for least, most in (("min_epochs", "max_epochs"), ("min_steps", "max_steps")):
        if None not in (trainer[least], trainer[most]) and trainer[least] > trainer[most] >= 0:
            expected = f"at most trainer.{most}={trainer[most]}"
            raise ConfigError(f"trainer.{least}", trainer[least], expected, f"Raise trainer.{most}, or leave it out.")


def check_devices(trainer: Any) -> None:
    """Refuse accelerators that are not known, fewer than one device, and GPUs that are not there, by the keys of `trainer`."""
    known = sorted({"auto", "gpu", *AcceleratorRegistry.available_accelerators()})
    if isinstance(name := trainer.accelerator, str) and name not in known:
        expected, meant = f"one of {', '.join(known)}", did_you_mean(name, known)
        raise ConfigError("trainer.accelerator", name, expected, f"{meant}auto takes what is there.")
    if str(trainer.devices) == "0" or re.fullmatch(r"-([2-9]|1\d+)", str(trainer.devices)):
        raise ConfigError("trainer.devices", trainer.devices, "at least 1, -1 or auto", "1 is the default.")
    if trainer.accelerator not in ("gpu", "cuda"):
        return
    there = torch.cuda.device_count()
    if not there:
        expected = "cpu or auto, since torch sees no GPU here"
        remedy = "Install a torch that was built for your GPU, or set it to cpu."
        raise ConfigError("trainer.accelerator", trainer.accelerator, expected, remedy)
    wanted = num_processes(trainer)
    if wanted is not None and wanted // trainer.num_nodes > there:
        raise ConfigError("trainer.devices", trainer.devices, f"at most {there}, the GPUs of this node", "Lower it.")


def settle_strategy(trainer: Any) -> None:
    """Fill in the device mesh of FSDP2 where it is left open, and refuse one that is none, in the keys of `trainer`.

    FSDP1 is refused: it knows no clipping of gradients, and no module that optimises by itself.
    """
    strategy = trainer.strategy
    name = str(getattr(strategy, "class_path", strategy))
    if "fsdp" in name.lower():
        raise ConfigError("trainer.strategy", name, "ddp or FSDP2", "Choose strategy=fsdp2.")
    if not getattr(strategy, "class_path", "").endswith("ModelParallelStrategy"):
        return
    sizes, ranks = strategy.init_args, num_processes(trainer)
    if ranks is None:
        expected = "the number of devices of a node, which FSDP2 makes its mesh of"
        raise ConfigError("trainer.devices", trainer.devices, expected, "Set it to a number.")
    if sizes.tensor_parallel_size == "auto":  # by itself Lightning would split every layer over the devices of a node
        sizes.tensor_parallel_size = 1
    if sizes.data_parallel_size == "auto":
        sizes.data_parallel_size = ranks
    if sizes.tensor_parallel_size != 1:
        expected = "1, since the policy's layers are sharded and not split"
        remedy = f"Set it to 1, and data_parallel_size to {ranks}."
        raise ConfigError(f"{_SIZES}.tensor_parallel_size", sizes.tensor_parallel_size, expected, remedy)
    if sizes.data_parallel_size != ranks:
        expected = f"{ranks}, since trainer.devices={trainer.devices} on trainer.num_nodes={trainer.num_nodes}"
        nearest = max(1, round(sizes.data_parallel_size / trainer.num_nodes))
        remedy = f"Set it to {ranks}, or trainer.devices to {nearest}."
        raise ConfigError(f"{_SIZES}.data_parallel_size", sizes.data_parallel_size, expected, remedy)


def check_nodes(trainer: Any) -> None:
    """Refuse several nodes where nothing says where they meet: this process would wait for the others without a word."""
    if trainer.num_nodes > 1 and not _placed():
        expected = "1, or MASTER_ADDR, MASTER_PORT and NODE_RANK in the environment"
        raise ConfigError("trainer.num_nodes", trainer.num_nodes, expected, "Start every node by torchrun or srun.")


def check_started(trainer: Any) -> None:
    """Refuse environment variables that give this process a rank which the run lacks, since it would write nothing down, or
    that count Slurm's tasks otherwise than by node, as Lightning does."""
    environment = os.environ
    tasks = environment.get("SLURM_NTASKS", "1")
    by_node = "SLURM_NTASKS_PER_NODE" in environment or environment.get("SLURM_JOB_NAME") in ("bash", "interactive")
    if tasks != "1" and not by_node:
        expected = "1, or SLURM_NTASKS_PER_NODE beside it, by which ranks are counted"
        raise ConfigError("SLURM_NTASKS", tasks, expected, "Submit with --ntasks-per-node in place of --ntasks.")
    nodes = max(1, trainer.num_nodes)
    ranks = num_processes(trainer) or nodes * max(1, 0 if trainer.accelerator == "cpu" else torch.cuda.device_count())
    for name, most in (("LOCAL_RANK", ranks // nodes), ("RANK", ranks), ("SLURM_PROCID", ranks)):
        if (rank := environment.get(name, "0")).isdecimal() and int(rank) >= most:
            expected = (
                f"below {most}, since trainer.devices={trainer.devices} and trainer.num_nodes={trainer.num_nodes}"
            )
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
        port = server.getsockname()[1]
        store = TCPStore(
            _LOOPBACK, port, is_master=True, wait_for_workers=False, multi_tenant=True, master_listen_fd=server.detach()
        )
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
    """Where this process fails, end the ranks that it has started, some of which may wait for it without end."""
    try:
        yield
    except Stopped:  # all ranks have agreed to
        raise
    except BaseException as error:
        started: list[Popen[bytes]] = getattr(trainer.strategy.launcher, "procs", [])
        ranks = list(started)
        started.clear()  # Lightning's observer would kill this process for what comes next
        for rank in ranks:
            with suppress(TimeoutExpired):
                rank.wait(_LAST_WORDS_S)
                continue
            rank.kill()
        if isinstance(error, DistNetworkError) and "EADDRINUSE" in str(error):
            port = os.environ.get("MASTER_PORT")
            raise ConfigError(
                "MASTER_PORT", port, "a port that no other process listens at", "Name another."
            ) from error
        raise


def check_shards(path: str, strategy: Any) -> None:
    """Refuse to train on from shards with a strategy that does not share them out; everything else reads them as well."""
    if Path(path).is_dir() and not isinstance(strategy, ModelParallelStrategy):
        expected = "a checkpoint in one file, or a strategy that shards, since this one holds shards of the optimizer"
        raise ConfigError("ckpt_path", path, expected, "Choose strategy=fsdp2.")


def num_processes(trainer: Any) -> int | None:
    """Processes of the run, by the keys of `trainer`; None where `devices` leaves it to Lightning."""
    devices = trainer.devices
    if isinstance(devices, list | tuple):
        return len(devices) * trainer.num_nodes
    number = int(devices) if str(devices).isdecimal() else 0
    return number * trainer.num_nodes or None
