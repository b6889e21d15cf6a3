"""Device meshes are filled in or refused before anything is built."""

import pytest
import torch
from jsonargparse import Namespace

from cod_lightning.commands.trainer_settings import check_devices, num_processes, settle_strategy
from cod_lightning.errors import ConfigError

FSDP2 = "lightning.pytorch.strategies.ModelParallelStrategy"


def trainer(devices, num_nodes=1, strategy=FSDP2, **sizes):
    own = Namespace(**({"data_parallel_size": "auto", "tensor_parallel_size": "auto"} | sizes))
    chosen = Namespace(class_path=strategy, init_args=own) if "." in strategy else strategy
    return Namespace(devices=devices, num_nodes=num_nodes, strategy=chosen)


@pytest.mark.parametrize(
    ("devices", "num_nodes", "number"),
    [(1, 1, 1), (4, 2, 8), ("4", 1, 4), ([0, 2], 1, 2), ("auto", 1, None), (-1, 2, None)],
)
def test_processes_are_counted_where_the_config_says_how_many(devices, num_nodes, number):
    assert num_processes(trainer(devices, num_nodes)) == number


def test_an_open_mesh_shards_over_all_processes():
    keys = trainer(4, 2)
    settle_strategy(keys)
    assert vars(keys.strategy.init_args) == {"data_parallel_size": 8, "tensor_parallel_size": 1}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (trainer(4, data_parallel_size=3), r"data_parallel_size is 3; expected 4.*trainer\.devices to 3"),
        (
            trainer(4, data_parallel_size=2, tensor_parallel_size=2),
            r"tensor_parallel_size is 2; expected 1.*Set it to 1",
        ),
        (trainer("auto"), r"trainer\.devices is auto; expected the number"),
    ],
)
def test_an_impossible_mesh_is_refused(keys, said):
    with pytest.raises(ConfigError, match=said):
        settle_strategy(keys)


@pytest.mark.parametrize("name", ["auto", "ddp"])
def test_other_strategies_have_no_mesh(name):
    keys = trainer("auto", strategy=name)
    settle_strategy(keys)
    assert keys.strategy == name


def on(accelerator, devices=1):
    return Namespace(accelerator=accelerator, devices=devices, num_nodes=1)


def test_a_gpu_is_refused_where_torch_sees_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match=r"trainer\.accelerator is gpu; expected cpu or auto, .*no GPU.*built for"):
        check_devices(on("gpu"))
    check_devices(on("auto"))
    check_devices(on("cpu", devices=8))


def test_more_gpus_than_a_node_has_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigError, match=r"trainer\.devices is 4; expected at most 2"):
        check_devices(on("gpu", devices=4))
    check_devices(on("gpu", devices=2))
    check_devices(on("gpu", devices="auto"))
