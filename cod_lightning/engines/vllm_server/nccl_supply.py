"""How vLLM servers get the trained weights by NCCL: every rank sends to its share of the servers while the weights go by."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.adapters import plain_form
from cod_lightning.engines.checkpoint_form import CheckpointForm
from cod_lightning.engines.vllm_server.fleet import Server
from cod_lightning.engines.vllm_server.start import on_all
from cod_lightning.engines.vllm_server.turn import ServerLost
from cod_lightning.engines.vllm_server.weight_nccl import NCCLTransfer
from cod_lightning.engines.vllm_server.weight_stream import (
    BUCKET_BYTES,
    Described,
    Reader,
    described,
    in_buckets,
    pass_by,
)
from cod_lightning.engines.vllm_server.weights import WeightSupply
from cod_lightning.errors import EngineFailure
from cod_lightning.ranks import gathered

_STALL = 0.25
"""Of `data.engine.sync_timeout_s`: for how long one server may have all others wait, within their own time-outs."""


class NCCLSupply(WeightSupply):
    """The ways to this rank's servers, a group for each. Weights are put together once and kept nowhere.

    Args:
        parent: Where the files are that servers are started from; null is shared memory.
        timeout_s: Most time for a server to take new weights.
        in_flight: Whether turns may be under way meanwhile.
    """

    doubt = "Was it started for another model, or can GPUs there not reach the GPUs here by NCCL?"

    def __init__(self, parent: str | None, *, timeout_s: float, in_flight: bool = False) -> None:
        super().__init__(parent, adapter=False, in_flight=in_flight)
        self._timeout_s = timeout_s
        self._transfers: dict[str, NCCLTransfer] = {}

    def taken(self, weights: Iterable[tuple[str, Tensor]], names: Collection[str]) -> Iterable[tuple[str, Tensor]]:
        """The weights as they are: what is missing is found while they go by."""
        return weights

    def sync(
        self, model: PreTrainedModel, named: Iterable[tuple[str, Tensor]], label: str, servers: Sequence[Server]
    ) -> None:
        """New weights, by a new name, to these servers of this rank; each is up afterwards, or lost. All ranks take part.

        Raises `EngineFailure`, on all ranks, for weights that are not those of the model.
        """
        self.label, form = label, CheckpointForm(model)
        layout = described(form.parts(plain_form(model)))
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        with ExitStack() as changing:
            for server in servers:
                changing.enter_context(server.changing)
            ready = [server for server, is_ready in zip(servers, on_all(servers, self._ready), strict=True) if is_ready]
            gathered(None)  # from here on a reader waits for no rank that still starts a server
            readers = [self._reader(server, layout, device) for server in ready]
            for reader in readers:
                reader.start()
            parts = form.parts((name, tensor.detach()) for name, tensor in named)
            pass_by(in_buckets(parts, layout, BUCKET_BYTES), readers)
            for server, reader in zip(ready, readers, strict=True):
                self._settle(server, reader.end())

    def close(self) -> None:
        """Leave the groups and remove the files."""
        for transfer in self._transfers.values():
            transfer.close()
        self._transfers.clear()
        super().close()

    def _ready(self, server: Server) -> bool:
        """Whether it can be reached and there is a group with it, or is one to be made; else it is lost."""
        try:
            self._see_started(server)
            version = server.client.version()
        except EngineFailure as failure:
            server.lose(str(failure))
            return False
        transfer = self._transfers.get(server.url)
        if transfer is None or version != transfer.label:  # started again since, or taken by another run
            if transfer is not None:
                transfer.close()
            self._transfers[server.url] = NCCLTransfer(server.client)
        return True

    def _reader(self, server: Server, layout: Sequence[Described], device: int | None) -> Reader:
        transfer, label = self._transfers[server.url], self.label

        def send(weights: Iterable[tuple[str, Tensor]]) -> None:
            if device is not None:
                torch.cuda.set_device(device)  # a new thread begins with the first GPU
            with self._held(server.client):
                transfer.send(layout, weights, reader.fail)
                server.client.settle(label)
            transfer.label = label

        reader = Reader(server.url, send, stall_s=_STALL * self._timeout_s, end_s=self._timeout_s)
        return reader

    def _settle(self, server: Server, failure: EngineFailure | None) -> None:
        """A group that failed half-way is left, and a server of ours with half of the tensors started again for the next sync."""
        if failure is None:
            server.serve()
            return
        server.lose(str(failure))
        self._transfers.pop(server.url).close()
        if server.process is not None:
            server.process.stop()

    def _restore(self, server: Server) -> None:
        raise ServerLost(f"{server.url} came back without weights; by NCCL it gets them at the next sync")
