"""What a weight transfer says to a server, as vLLM's routes take it. The transfer itself needs two GPUs: not yet run."""

import importlib
import queue
import threading
import warnings
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from cod_lightning.engines.vllm_server.client import ServerClient
from cod_lightning.engines.vllm_server.weight_nccl import NCCLTransfer, SyncRoutes
from cod_lightning.errors import ConfigError, EngineFailure
from tests.vllm_server import FakeVLLM

LAYOUT = [("a", torch.float32, (2, 3)), ("b", torch.bfloat16, (4,))]
UPDATE = {"names": ["a", "b"], "dtype_names": ["float32", "bfloat16"], "shapes": [[2, 3], [4]]}


@pytest.fixture
def server():
    fake = FakeVLLM()
    yield fake
    fake.die()


def test_every_call_of_a_transfer_has_its_route(server):
    routes = SyncRoutes(ServerClient(server.url, "", 5.0))
    routes.layout = LAYOUT
    routes.init_weight_transfer_engine({"world_size": 2})
    routes.start_weight_update()
    routes.update_weights(UPDATE)
    routes.finish_weight_update()
    routes.shutdown_weight_transfer_engine()
    assert set(server.calls) == {
        "/init_weight_transfer_engine",
        "/start_weight_update",
        "/update_weights",
        "/finish_weight_update",
        "/shutdown_weight_transfer_engine",
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"names": ["b", "a"]}, r"vLLM tells a server of b \(float32 \[2, 3\]\); a \(float32 \[2, 3\]\) is sent"),
        ({"dtype_names": ["float32", "float16"]}, r"of b \(float16 \[4\]\); b \(bfloat16 \[4\]\) is sent"),
        ({"dtype_names": ["float32", "bf16"]}, r"of b \(None \[4\]\); b \(bfloat16"),
        ({"shapes": [[3, 2], [4]]}, r"of a \(float32 \[3, 2\]\); a \(float32 \[2, 3\]\) is sent"),
        ({"shapes": [[2, 3]]}, "vLLM tells a server 2, 2, 1 names, dtypes and shapes; 2 tensors are sent"),
        ({"names": ["a"], "dtype_names": ["float32"], "shapes": [[2, 3]]}, "1, 1, 1 names"),
    ],
)
def test_a_server_is_told_of_what_is_sent_or_of_nothing(change, said, server):
    failures = []
    routes = SyncRoutes(ServerClient(server.url, "", 5.0))
    routes.layout, routes.fail = LAYOUT, failures.append
    with pytest.raises(EngineFailure, match=said) as raised:
        routes.update_weights(UPDATE | change)
    assert "\n" not in str(raised.value)
    assert failures == [raised.value]
    assert server.calls["/update_weights"] == 0


def test_the_group_has_a_rank_for_each_worker_and_one_for_training(server):
    info = NCCLTransfer(ServerClient(server.url, "", 5.0)).init_info()
    assert info["world_size"] == 2
    assert info["rank"] == 0
    assert info["master_address"] == "127.0.0.1"
    assert info["master_port"] > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is missing without a GPU")
def test_without_a_gpu_it_is_refused_by_key():
    with pytest.raises(ConfigError, match=r"data\.engine\.weights is nccl; expected folder"):
        NCCLTransfer.check()


@pytest.mark.vllm
def test_vllm_s_own_classes_take_what_they_are_given(server):
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo, NCCLTrainerWeightTransferEngine

    transfer = NCCLTransfer(ServerClient(server.url, "", 5.0))
    NCCLTrainerInitInfo(**transfer.init_info())
    transfer._routes.layout = LAYOUT
    transfer._weights = [("a", torch.zeros(2, 3)), ("b", torch.zeros(4, dtype=torch.bfloat16))]
    source = transfer._source()
    sent = list(NCCLTrainerWeightTransferEngine._checked_iter(source, source.metadata()))
    assert [name for name, _ in sent] == ["a", "b"]
    transfer._routes.layout = [("a", torch.float32, (5,))]
    assert source.metadata()[0].shape == (5,)


class Wire:
    """A communicator of a sender and two workers, on a CPU."""

    def __init__(self):
        self.to = [queue.Queue(), queue.Queue()]
        self.sizes = []

    def broadcast(self, tensor, src, stream=None):
        self.sizes.append(tensor.numel())
        for worker in self.to:
            worker.put(tensor.clone())

    def of(self, worker):
        def receive(tensor, src, stream=None):
            tensor.copy_(self.to[worker].get(timeout=20))

        return SimpleNamespace(broadcast=receive)


@pytest.mark.vllm
def test_vllm_s_own_sender_and_the_receivers_of_two_workers_agree_on_every_bucket(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's compiler
        importlib.import_module("vllm.model_executor.model_loader.mtp_validation")
    from vllm.distributed.weight_transfer import packed_tensor
    from vllm.distributed.weight_transfer.nccl_engine import (
        NCCLTrainerInitInfo,
        NCCLTrainerWeightTransferEngine,
        NCCLWeightTransferEngine,
        NCCLWeightTransferUpdateInfo,
    )

    stream = SimpleNamespace(synchronize=lambda: None)
    monkeypatch.setattr(packed_tensor, "_get_streams", lambda device, number: (stream,) * number)
    monkeypatch.setattr(torch.cuda, "stream", lambda one: nullcontext())
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    torch.manual_seed(0)
    named = [(f"w{i}", torch.randn(5, i + 1).to([torch.float32, torch.bfloat16][i % 2])) for i in range(20)]
    wire, size = Wire(), 300
    received = [[], []]

    def worker(index):
        engine = object.__new__(NCCLWeightTransferEngine)
        engine.device = "cpu"
        engine.packed, engine.packed_buffer_size_bytes, engine.packed_num_buffers = True, size, 2
        engine.model = SimpleNamespace(
            load_weights=lambda part: received[index].extend((n, t.clone()) for n, t in part)
        )
        engine.model_update_group = wire.of(index)
        return engine

    class Server:
        """Its two workers receive at the same time, as under tensor parallelism."""

        url, posted = "http://a:1", []

        def get(self, path):
            return {"world_size": 2}

        def post(self, path, body=None):
            self.posted.append(path)
            if path == "/update_weights":
                info = NCCLWeightTransferUpdateInfo(**body["update_info"])
                threads = [threading.Thread(target=worker(i).receive_weights, args=(info,)) for i in range(2)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(20)

    transfer = NCCLTransfer(Server())
    monkeypatch.setattr("cod_lightning.engines.vllm_server.weight_nccl._own_address", lambda host: ("127.0.0.1", 1))
    assert NCCLTrainerInitInfo(**transfer.init_info()).world_size == 3
    transfer._engine = NCCLTrainerWeightTransferEngine(
        client=transfer._routes, source=transfer._source(), packed_buffer_size_bytes=size
    )
    transfer._engine.model_update_group = wire
    failures = []
    transfer.send([(name, t.dtype, tuple(t.shape)) for name, t in named], iter(named), failures.append)
    assert not failures
    assert Server.posted == ["/start_weight_update", "/update_weights", "/finish_weight_update"]
    for found in received:
        assert [name for name, _ in found] == [name for name, _ in named]
        assert all(torch.equal(ours, theirs) for (_, ours), (_, theirs) in zip(named, found, strict=True))
    assert len(wire.sizes) > 3
    assert max(wire.sizes) <= size + max(t.nbytes for _, t in named)
