"""What a weight transfer says to a server, as vLLM's routes take it. The transfer itself needs two GPUs: not yet run."""

import pytest
import torch

from cod_lightning.engines.vllm_server.client import ServerClient
from cod_lightning.engines.vllm_server.weight_nccl import NCCLTransfer, SyncRoutes
from cod_lightning.errors import ConfigError
from tests.vllm_server import FakeVLLM


@pytest.fixture
def server():
    fake = FakeVLLM()
    yield fake
    fake.die()


def test_every_call_of_a_transfer_has_its_route(server):
    routes = SyncRoutes(ServerClient(server.url, "", 5.0))
    routes.init_weight_transfer_engine({"world_size": 2})
    routes.start_weight_update()
    routes.update_weights({"names": ["a"]})
    routes.finish_weight_update()
    routes.shutdown_weight_transfer_engine()
    assert set(server.calls) == {
        "/init_weight_transfer_engine",
        "/start_weight_update",
        "/update_weights",
        "/finish_weight_update",
        "/shutdown_weight_transfer_engine",
    }


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
    transfer._named = [("a", torch.zeros(2, 3)), ("b", torch.zeros(4, dtype=torch.bfloat16))]
    source = transfer._source()
    sent = list(NCCLTrainerWeightTransferEngine._checked_iter(source, source.metadata()))
    assert [name for name, _ in sent] == ["a", "b"]
    transfer._named = [("a", torch.zeros(5))]
    assert source.metadata()[0].shape == (5,)
