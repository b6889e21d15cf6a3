"""Device meshes are filled in or refused before anything is built."""

import inspect
import logging
import os
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from jsonargparse import Namespace
from lightning.pytorch import Trainer
from lightning.pytorch.profilers import SimpleProfiler

from cod_lightning.commands import trainer_settings
from cod_lightning.commands.lightning_cli import quieten
from cod_lightning.commands.trainer_settings import (
    check_started,
    check_trainer,
    num_processes,
    on_loopback,
    settle_strategy,
)
from cod_lightning.errors import ConfigError
from tests.cases import each
from tests.forked import Ranks, on_ranks

FSDP2 = "lightning.pytorch.strategies.ModelParallelStrategy"


def trainer(devices, num_nodes=1, strategy=FSDP2, **sizes):
    own = Namespace(**({"data_parallel_size": "auto", "tensor_parallel_size": "auto"} | sizes))
    chosen = Namespace(class_path=strategy, init_args=own) if "." in strategy else strategy
    return Namespace(devices=devices, num_nodes=num_nodes, accelerator="cpu", strategy=chosen)


@each(
    ("devices", "num_nodes", "number"), [(1, 1, 1), (4, 2, 8), ("4", 1, 4), ([0, 2], 1, 2), ("auto", 1, 1), (-1, 2, 2)]
)
def test_processes_are_counted_by_the_config_or_by_what_is_here(devices, num_nodes, number):
    assert num_processes(trainer(devices, num_nodes)) == number


def test_an_open_mesh_shards_over_all_processes():
    keys = trainer(4, 2)
    settle_strategy(keys)
    assert vars(keys.strategy.init_args) == {"data_parallel_size": 8, "tensor_parallel_size": 1}


@each(
    ("keys", "said"),
    [
        (trainer(4, data_parallel_size=2, tensor_parallel_size=2), "tensor_parallel_size is 2"),
        (trainer(2, strategy="fsdp"), r"trainer\.strategy is fsdp; .*strategy=fsdp2"),
        (trainer(2, strategy="lightning.pytorch.strategies.FSDPStrategy"), r"FSDPStrategy; .*strategy=fsdp2"),
    ],
)
def test_an_impossible_mesh_is_refused(keys, said):
    with pytest.raises(ConfigError, match=said):
        settle_strategy(keys)


@each("name", ["auto", "ddp"])
def test_other_strategies_have_no_mesh(name):
    keys = trainer("auto", strategy=name)
    settle_strategy(keys)
    assert keys.strategy == name


def on(accelerator, devices=1):
    return Namespace(accelerator=accelerator, devices=devices, num_nodes=1)


@pytest.fixture
def started(monkeypatch):
    """Sets what starts processes says of this one, and nothing else."""

    def set_all(**said):
        for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"):
            monkeypatch.delenv(name, raising=False)
        for name, value in said.items():
            monkeypatch.setenv(name, value)

    return set_all


@pytest.mark.parametrize(
    ("said", "devices", "answer"),
    [
        ({"LOCAL_RANK": "1"}, 1, r"LOCAL_RANK is 1; expected below 1, since trainer\.devices=1.*unset LOCAL_RANK"),
        ({"RANK": "2", "LOCAL_RANK": "0"}, 2, r"^RANK is 2; expected below 2"),
        ({"SLURM_PROCID": "1"}, "auto", r"SLURM_PROCID is 1; expected below 1"),
    ],
)
def test_a_process_that_its_environment_gives_a_rank_the_run_lacks_is_refused(started, said, devices, answer):
    started(**said)
    with pytest.raises(ConfigError, match=answer):
        check_started(on("cpu", devices))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"RANK": "1", "LOCAL_RANK": "1", "SLURM_PROCID": "1"},
    ],
)
def test_a_rank_of_the_run_may_start(started, said):
    started(**said)
    check_started(on("cpu", 2))


@each(
    ("said", "refused"),
    [
        ({"SLURM_NTASKS": "4"}, True),
        ({"SLURM_NTASKS": "x"}, True),
        ({"SLURM_NTASKS": "1"}, False),
        ({"SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2"}, False),
        ({"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "bash"}, False),
        ({"SLURM_NTASKS": "4", "TORCHELASTIC_RUN_ID": "none"}, False),
    ],
)
def test_tasks_of_slurm_that_lightning_cannot_count_are_refused_by_their_variable(monkeypatch, said, refused):
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    answer = f"^SLURM_NTASKS is {said['SLURM_NTASKS']}; .*SLURM_NTASKS_PER_NODE.* srun .*unset SLURM_NTASKS"
    usual = Namespace({name: one.default for name, one in inspect.signature(Trainer).parameters.items()})
    with pytest.raises(ConfigError, match=answer) if refused else nullcontext():
        check_trainer(usual, None)


def listening():
    """Addresses at which this process listens, as the system writes them."""
    mine = {os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.exists()}
    tables = (Path(f"/proc/self/net/{kind}").read_text() for kind in ("tcp", "tcp6"))
    lines = [line.split() for table in tables for line in table.splitlines()[1:]]
    return sorted({line[1].split(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in mine})


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="looks at /proc")
def test_ranks_on_one_machine_listen_on_no_address_that_another_machine_reaches(tmp_path, monkeypatch):
    own = "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"
    for name in own:
        monkeypatch.delenv(name, raising=False)

    def work(rank):
        dist.init_process_group("gloo", rank=rank, world_size=2)
        dist.all_reduce(summed := torch.ones(2) * (rank + 1))
        found = summed.tolist(), listening()
        dist.barrier()
        return found

    def first():
        with on_loopback(SimpleNamespace(devices=2, num_nodes=1)):
            second = Ranks(1, lambda: work(1), tmp_path / "second")
            found = work(0)
            return [found, *second.results(60)]

    assert on_ranks(1, first, tmp_path / "first") == [[([3.0, 3.0], ["0100007F"])] * 2]
    with on_loopback(SimpleNamespace(devices=2, num_nodes=1)):
        pass
    assert not os.environ.keys() & {*own}


@each(
    ("environment", "trainer"),
    [
        ({"MASTER_ADDR": "node0"}, {"devices": 2, "num_nodes": 1}),
        ({"RANK": "0"}, {"devices": 2, "num_nodes": 1}),
        ({}, {"devices": 2, "num_nodes": 2}),
        ({}, {"devices": 1, "num_nodes": 1}),
    ],
)
def test_where_the_ranks_meet_is_left_to_who_has_placed_them(monkeypatch, environment, trainer):
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with on_loopback(SimpleNamespace(**trainer)):
        assert dict(os.environ) == before


def started_by_it(*processes):
    return SimpleNamespace(strategy=SimpleNamespace(launcher=SimpleNamespace(procs=[*processes])))


@pytest.mark.slow
@each("error", [RuntimeError("x"), KeyboardInterrupt()])
def test_ranks_that_this_process_started_end_with_it_after_their_last_words(monkeypatch, error):
    monkeypatch.setattr(trainer_settings, "_LAST_WORDS_S", 0.3)
    quick, stuck = (subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({s})"]) for s in (0, 600))
    trainer = started_by_it(quick, stuck)
    with pytest.raises(type(error)), trainer_settings.ending_together(trainer):  # type: ignore[arg-type]
        raise error
    assert (quick.wait(5), stuck.wait(5), trainer.strategy.launcher.procs) == (0, -signal.SIGKILL, [])


def test_a_port_to_meet_at_that_another_process_has_is_named_in_one_line(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("MASTER_PORT", port := str(taken.getsockname()[1]))
        with (
            pytest.raises(ConfigError, match=rf"^MASTER_PORT is {port}; expected a free port"),
            trainer_settings.ending_together(started_by_it()),  # type: ignore[arg-type]
        ):
            dist.TCPStore("127.0.0.1", int(port), 1, is_master=True)


def test_what_a_profiler_measured_is_shown(monkeypatch):
    logger, shown = logging.getLogger("lightning.pytorch.profilers"), list[str]()
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: shown.append(record.getMessage()))
    monkeypatch.setattr(logger, "handlers", [handler])
    quieten()
    SimpleProfiler().describe()
    assert shown
