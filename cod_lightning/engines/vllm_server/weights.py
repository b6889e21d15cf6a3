"""How vLLM servers get the trained weights, at a sync and when one of them comes back."""

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.adapters import synced_weights
from cod_lightning.engines.checkpoint_form import CheckpointForm
from cod_lightning.engines.vllm_folder import WeightFolder
from cod_lightning.engines.vllm_server.client import ServerClient
from cod_lightning.engines.vllm_server.fleet import Server
from cod_lightning.engines.vllm_server.turn import ServerLost
from cod_lightning.engines.vllm_server.weight_nccl import NCCLTransfer
from cod_lightning.errors import EngineFailure
from cod_lightning.ranks import gathered

_FRESH = "default"
"""What vLLM calls the weights that a server was started with."""


class WeightSupply:
    """The weights of the latest sync, and the ways to the servers.

    Args:
        by: Files that the servers read, or NCCL from GPU to GPU. An adapter goes as files in any case.
        parent: Where the files are; null is shared memory.
        adapter: Whether servers have the base from their start and only an adapter is handed over.
        in_flight: Whether turns may be under way meanwhile.
    """

    def __init__(
        self, by: Literal["folder", "nccl"], parent: str | None, *, adapter: bool, in_flight: bool = False
    ) -> None:
        self._by = "folder" if adapter else by
        self._adapter = adapter
        self._held = ServerClient.turns_held if in_flight else nullcontext
        self._latest = threading.Lock()
        """Held while the latest weights change, and while a server that came back is brought them."""
        self._start = WeightFolder(parent)
        """What a server is started from."""
        self._folder = WeightFolder(parent) if adapter else self._start
        self._path = Path()
        """Where servers find the latest."""
        self._transfers: dict[str, NCCLTransfer] = {}
        self._named: Sequence[tuple[str, Tensor]] = ()
        self.label, self._before = "", ""

    def begin(self, model: PreTrainedModel, *, four_bit: bool) -> Path:
        """A folder that a server can be started from; under an adapter the base, in its 4 bits if asked to."""
        if self._adapter:
            return self._start.write_base(model, four_bit=four_bit)
        return self._start.write(model, synced_weights(model, adapter=False), "start")

    def renew(self, model: PreTrainedModel, named: Sequence[tuple[str, Tensor]], label: str, *, give: bool) -> None:
        """New weights, by a new name. Call `done` when all have them. All ranks take part.

        A rank that has none to `give` knows where rank 0 wrote them, for a server that it finds without.
        """
        with self._latest:
            self._before, self.label = self.label, label
            self._named = CheckpointForm(model)(named) if give and self._by == "nccl" else ()
            if self._by == "folder":
                write = self._folder.write_adapter if self._adapter else self._folder.write
                own = write(model, named, label) if give else None
                first = gathered(own)[0]
                self._path = own or first or Path()

    def done(self) -> None:
        """Keep no tensors."""
        self._named = ()

    def give(self, server: Server) -> None:
        """Weights, an empty prefix cache, and their name. A server of ours that has ended is started again first."""
        with server.changing:
            if server.process is not None and not server.process.alive:
                server.process.start(self._start.current)
                server.process.wait(server.client.healthy)
            if self._by == "folder":
                self._load(server)
                return
            transfer = self._transfers.get(server.url)
            if transfer is None or server.client.version() == _FRESH:
                transfer = self._transfers[server.url] = NCCLTransfer(server.client)
            with self._held(server.client):
                transfer.send(self._named)
                server.client.settle(self.label)

    def bring_back(self, server: Server) -> None:
        """One try to have a lost server serve again. Raises `EngineFailure` while it cannot."""
        with server.changing:
            if server.process is not None and not server.process.alive:
                server.process.start(self._start.current)
            if not server.client.healthy():
                raise ServerLost(server.trouble or f"{server.url} cannot be reached")
            if server.client.version() == self.label:
                return
            if self._by == "nccl":
                raise ServerLost(f"{server.url} came back without weights; by NCCL it gets them at the next sync")
            with self._latest:
                self._load(server)

    def _load(self, server: Server) -> None:
        """What fails leaves vLLM (0.32) with half of the tensors for ever; a server of ours is started again for the next try."""
        try:
            if self._adapter:
                server.client.load_adapter(str(self._path), self.label, self._before)
                return
            with self._held(server.client):
                server.client.load(str(self._path), self.label)
        except EngineFailure:
            if server.process is not None:
                server.process.stop()
            raise

    def close(self) -> None:
        """Leave the groups and remove the files."""
        for transfer in self._transfers.values():
            transfer.close()
        self._transfers.clear()
        self._folder.close()
        self._start.close()
