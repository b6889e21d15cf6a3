"""Weights from this process's GPU to a server's by NCCL, through vLLM's weight-transfer API. Not yet run on a GPU.

The server has to be started with --weight-transfer-config '{"backend": "nccl"}'; those that are started here are. Written
against vLLM 0.32 (`vllm.distributed.weight_transfer`).
"""

import socket
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor

from cod_lightning.engines.vllm_server.client import ServerClient
from cod_lightning.errors import ConfigError


class NCCLTransfer:
    """An NCCL group of this process (rank 0) and the workers of one server.

    Args:
        server: Whom to send to; it has new weights and no new label afterwards.
    """

    def __init__(self, server: ServerClient) -> None:
        self._server = server
        self._engine: Any = None
        self._named: Sequence[tuple[str, Tensor]] = ()

    @staticmethod
    def check() -> None:
        """Raise `ConfigError` where this process cannot take part."""
        if not torch.cuda.is_available():
            expected = "folder, since NCCL connects GPUs and this process has none"
            raise ConfigError("data.engine.weights", "nccl", expected, "Leave it out.")
        if find_spec("vllm") is None:
            expected = "folder, since vLLM, whose NCCL group this is, is not in this environment"
            raise ConfigError("data.engine.weights", "nccl", expected, "Install vLLM here, or leave it out.")

    def send(self, named: Sequence[tuple[str, Tensor]]) -> None:
        """Every tensor once, in this order, while the server receives."""
        self._named = named
        try:
            if self._engine is None:
                self._engine = self._join()
            self._engine.send_weights()
        finally:
            self._named = ()

    def close(self) -> None:
        if self._engine is not None:
            self._engine.shutdown()
            self._engine = None

    def init_info(self) -> dict[str, Any]:
        """Who meets where: one rank for this process, one for each worker of the server."""
        host = urlsplit(self._server.url).hostname or ""
        workers = int(self._server.get("/get_world_size")["world_size"])
        address, port = _own_address(host)
        return {"rank": 0, "master_address": address, "master_port": port, "world_size": workers + 1}

    def _join(self) -> Any:
        from vllm.distributed.weight_transfer.nccl_engine import (  # pyright: ignore[reportMissingImports]
            NCCLTrainerInitInfo,
            NCCLTrainerWeightTransferEngine,
        )

        return NCCLTrainerWeightTransferEngine.trainer_init(
            NCCLTrainerInitInfo(**self.init_info()), client=SyncRoutes(self._server), source=self._source()
        )

    def _source(self) -> Any:
        """The weights of the sync at hand, in the form that vLLM asks for."""
        from vllm.distributed.weight_transfer.base import (  # pyright: ignore[reportMissingImports]
            ParamMeta,
            WeightSource,
        )

        transfer = self

        class Named(WeightSource):
            def metadata(self) -> list[Any]:
                return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in transfer._named]

            def __iter__(self) -> Iterator[tuple[str, Tensor]]:
                return iter(transfer._named)

        return Named()


class SyncRoutes:
    """The server's side of a transfer, over its HTTP routes; the five calls that vLLM's trainer side makes."""

    def __init__(self, server: ServerClient) -> None:
        self._server = server

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Join the group; returns when all have."""
        self._server.post("/init_weight_transfer_engine", {"init_info": init_info})

    def shutdown_weight_transfer_engine(self) -> None:
        self._server.post("/shutdown_weight_transfer_engine")

    def start_weight_update(self) -> None:
        self._server.post("/start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        """These; returns when they are there."""
        self._server.post("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        content = {} if weight_version is None else {"weight_version": weight_version}
        self._server.post("/finish_weight_update", content)


def _own_address(host: str) -> tuple[str, int]:
    """The address by which that host reaches this one, and a free port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect((host, 9))  # sends nothing; the kernel chooses the way
        address = route.getsockname()[0]
    with socket.socket() as probe:
        probe.bind((address, 0))
        return address, int(probe.getsockname()[1])
