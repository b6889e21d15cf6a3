"""How vLLM servers get the trained weights by files, at a sync and when one of them comes back."""

import threading
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.adapters import synced_weights
from cod_lightning.engines.vllm_folder import WeightFolder
from cod_lightning.engines.vllm_server.client import ServerClient, ServerLost
from cod_lightning.engines.vllm_server.fleet import Server, on_all
from cod_lightning.errors import EngineFailure
from cod_lightning.ranks import gathered


class WeightSupply:
    """The weights of the latest sync, and the way to the servers.

    Args:
        parent: Where files are; null is shared memory.
        adapter: Whether servers have the base from their start and only an adapter is handed over.
        in_flight: Whether turns may be under way meanwhile.
    """

    def __init__(self, parent: str | None, *, adapter: bool, in_flight: bool = False) -> None:
        self._adapter = adapter
        self._held = ServerClient.turns_held if in_flight else nullcontext
        self._latest = threading.Lock()
        """Held while the latest weights change, and while a server that came back is brought them."""
        self._start = WeightFolder(parent)
        """What a server is started from."""
        self._folder = WeightFolder(parent) if adapter else self._start
        self._path = Path()
        """Where servers find the latest."""
        self.label, self._before = "", ""

    def begin(self, model: PreTrainedModel) -> Path:
        """A folder that a server can be started from; under an adapter the base."""
        if self._adapter:
            return self._start.write_base(model)
        return self._start.write(model, synced_weights(model, adapter=False), "start")

    def sync(
        self, model: PreTrainedModel, named: Iterable[tuple[str, Tensor]], label: str, servers: Sequence[Server]
    ) -> None:
        """New weights, by a new name, to these servers of this rank; each is up afterwards, or lost. All ranks take part.

        A rank without any knows where rank 0 wrote them, for a server that it finds without.
        """
        with self._latest:
            gathered(label)  # no rank brings a server any more what rank 0 is about to remove
            self._before, self.label = self.label, label
            write = self._folder.write_adapter if self._adapter else self._folder.write
            own = write(model, named, label) if servers else None
            first = gathered(own)[0]
            self._path = own or first or Path()
        on_all(servers, self._give)

    def bring_back(self, server: Server) -> None:
        """One try to have a lost server serve again. Raises `EngineFailure` while it cannot."""
        with server.changing:
            if server.process is not None and not server.process.alive:
                server.process.start(self._start.current)
            if not server.client.healthy():
                raise ServerLost(server.trouble or f"{server.url} cannot be reached")
            if server.client.version() != self.label:
                with self._latest:
                    self._load(server)

    def close(self) -> None:
        """Remove the files."""
        self._folder.close()
        self._start.close()

    def _give(self, server: Server) -> None:
        """Weights, an empty prefix cache, and their name."""
        try:
            with server.changing:
                if server.process is not None and not server.process.alive:
                    server.process.start(self._start.current)
                self._load(server)
        except (EngineFailure, OSError) as failure:  # the second where its process or its log cannot be opened
            server.lose(str(failure))
        else:
            server.serve()

    def _load(self, server: Server) -> None:
        """What fails leaves vLLM (0.32) with half of the tensors for ever; a server of ours is started again for the next try."""
        try:
            if server.process is not None:
                server.process.wait(server.client.healthy)  # it may have been started again a moment ago
            if self._adapter:
                server.client.load_adapter(str(self._path), self.label, self._before)
                return
            with self._held(server.client):
                server.client.load(str(self._path), self.label)
        except EngineFailure:
            if server.process is not None:
                server.process.stop()
            raise
