"""Weights from this process's GPU to a server's by NCCL, through vLLM's weight-transfer API. Not yet run on a GPU.

The server has to be started with --weight-transfer-config '{"backend": "nccl"}'; those that are started here are. Written
against vLLM 0.32 (`vllm.distributed.weight_transfer`): each worker of a server receives every tensor in full, and its model's
`load_weights` keeps the share that tensor parallelism gives it.
"""

import socket
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor

from cod_lightning.engines.vllm_server.client import ServerClient
from cod_lightning.engines.vllm_server.weight_stream import BUCKET_BYTES, Described, Fail, in_words
from cod_lightning.errors import ConfigError, EngineFailure


class NCCLTransfer:
    """An NCCL group of this process (rank 0) and the workers of one server.

    Args:
        server: Whom to send to; it has new weights and no new label afterwards.
    """

    def __init__(self, server: ServerClient) -> None:
        self._server, self._routes = server, SyncRoutes(server)
        self._engine: Any = None
        self._weights: Iterable[tuple[str, Tensor]] = ()
        self.label = ""
        """Of the weights that it sent last."""

    @staticmethod
    def check() -> None:
        """Raise `ConfigError` where this process cannot take part."""
        if not torch.cuda.is_available():
            expected = "folder, since NCCL connects GPUs and this process has none"
            raise ConfigError("data.engine.weights", "nccl", expected, "Leave it out.")
        if find_spec("vllm") is None:
            expected = "folder, since vLLM, whose NCCL group this is, is not in this environment"
            raise ConfigError("data.engine.weights", "nccl", expected, "Install vLLM here, or leave it out.")

    def send(self, layout: Sequence[Described], weights: Iterable[tuple[str, Tensor]], fail: Fail) -> None:
        """Every tensor once, in this order, while the server receives, which gets their layout first.

        Calls `fail` as soon as the server says that it does not receive: NCCL itself waits for it, and vLLM's trainer side with it.
        """
        self._routes.layout, self._routes.fail, self._weights = layout, fail, weights
        warnings.filterwarnings(
            "ignore", "Tensor '.*exceeds buffer_size_bytes"
        )  # such as embeddings: a buffer of their own
        try:
            if self._engine is None:
                self._engine = self._join()
            self._engine.send_weights()
        finally:
            self._weights = ()

    def close(self) -> None:
        """Leave the group; who waits in it goes on, with an error."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shutdown()

    def init_info(self) -> dict[str, Any]:
        """Who meets where: one rank for this process, one for each worker of the server, which has one on each of its GPUs.

        Tensors are packed into buffers of `BUCKET_BYTES`, by vLLM two at a time; its own default is 1 GiB.
        """
        host = urlsplit(self._server.url).hostname or ""
        workers = int(self._server.get("/get_world_size")["world_size"])
        address, port = _own_address(host)
        group = {"rank": 0, "master_address": address, "master_port": port, "world_size": workers + 1}
        return group | {"packed": True, "packed_buffer_size_bytes": BUCKET_BYTES}

    def _join(self) -> Any:
        from vllm.distributed.weight_transfer.nccl_engine import (  # pyright: ignore[reportMissingImports]
            NCCLTrainerInitInfo,
            NCCLTrainerWeightTransferEngine,
        )

        return NCCLTrainerWeightTransferEngine.trainer_init(
            NCCLTrainerInitInfo(**self.init_info()), client=self._routes, source=self._source()
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
                return [ParamMeta(*one) for one in transfer._routes.layout]

            def __iter__(self) -> Iterator[tuple[str, Tensor]]:
                return iter(transfer._weights)

        return Named()


class SyncRoutes:
    """The server's side of a transfer, over its HTTP routes; the five calls that vLLM's trainer side makes."""

    def __init__(self, server: ServerClient) -> None:
        self._server = server
        self.layout: Sequence[Described] = ()
        """What is sent."""
        self.fail: Fail = lambda failure: None

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Join the group; returns when all have."""
        with self._failing():
            self._server.post("/init_weight_transfer_engine", {"init_info": init_info})

    def shutdown_weight_transfer_engine(self) -> None:
        self._server.post("/shutdown_weight_transfer_engine")

    def start_weight_update(self) -> None:
        self._server.post("/start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        """These; returns when they are there. Refused where the receiver would make its buffers for others than are sent."""
        with self._failing():
            see_layout(update_info, self.layout)
            self._server.post("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        content = {} if weight_version is None else {"weight_version": weight_version}
        self._server.post("/finish_weight_update", content)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """For calls during which vLLM's trainer side waits in NCCL, and does not look how they go."""
        try:
            yield
        except EngineFailure as failure:
            self.fail(failure)
            raise


def see_layout(update_info: Mapping[str, Any], sent: Sequence[Described]) -> None:
    """Raise `EngineFailure` where vLLM's receiver, which makes its buffers from this, would expect other tensors than are sent."""
    lists = [update_info.get(key, ()) for key in ("names", "dtype_names", "shapes")]
    if {len(one) for one in lists} != {len(sent)}:
        counts = ", ".join(str(len(one)) for one in lists)
        raise EngineFailure(f"vLLM tells a server {counts} names, dtypes and shapes; {len(sent)} tensors are sent")
    for ours, name, dtype, shape in zip(sent, *lists, strict=True):
        if (theirs := (name, getattr(torch, dtype, None), tuple(shape))) != ours:
            raise EngineFailure(f"vLLM tells a server of {in_words(theirs)}; {in_words(ours)} is sent")


def _own_address(host: str) -> tuple[str, int]:
    """The address by which that host reaches this one, and a free port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect((host, 9))  # sends nothing; the kernel chooses the way
        address = route.getsockname()[0]
    with socket.socket() as probe:
        probe.bind((address, 0))
        return address, int(probe.getsockname()[1])
