"""Which server serves which dialogue: the one that holds its prefix, and another only when that one is lost."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import structs

from cod_lightning.engines.base import Completion, Engine, Request
from cod_lightning.engines.vllm_server.client import ServerClient
from cod_lightning.engines.vllm_server.process import ServerProcess


@dataclass(slots=True)
class Server:
    """A server and what is known of it."""

    client: ServerClient
    process: ServerProcess | None = None
    """Where it was started here."""
    up: bool = False
    trouble: str = ""
    """Why it is not."""
    num_dialogues: int = 0
    changing: threading.Lock = field(default_factory=threading.Lock)
    """Held while it is brought weights: a sync may find it being brought back."""

    @property
    def url(self) -> str:
        return self.client.url

    def serve(self) -> None:
        """It has the latest weights."""
        self.up, self.trouble = True, ""

    def lose(self, why: str) -> None:
        """It serves no more turns until it comes back."""
        self.up, self.trouble = False, why


class Fleet:
    """A dialogue stays where it began; a new one goes where the fewest are.

    Args:
        servers: All of them, up or not.
    """

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = tuple(servers)
        self._homes: dict[str, Server] = {}
        self.num_rerouted = 0
        """Dialogues that had to move, which costs their prefix."""

    def home(self, dialogue: str) -> Server | None:
        """Its server; none while all are down."""
        home = self._homes.get(dialogue)
        if home is not None and home.up:
            return home
        up = [server for server in self.servers if server.up]
        if not up:
            return None
        if home is not None:
            self.num_rerouted += 1
            self.release(dialogue)
        chosen = min(up, key=lambda server: server.num_dialogues)
        chosen.num_dialogues += 1
        self._homes[dialogue] = chosen
        return chosen

    def pin(self, dialogue: str, server: Server) -> None:
        """Let a dialogue begin at this server."""
        self.release(dialogue)
        server.num_dialogues += 1
        self._homes[dialogue] = server

    def forget(self) -> None:
        """No dialogue has a prefix anywhere."""
        for dialogue in list(self._homes):
            self.release(dialogue)

    def release(self, dialogue: str) -> None:
        if (home := self._homes.pop(dialogue, None)) is not None:
            home.num_dialogues -= 1

    def troubles(self) -> str:
        """What is wrong with those that are down, in one line."""
        return "; ".join(server.trouble or server.url for server in self.servers if not server.up)


class OneServer(Engine):
    """An engine's server on its own, for the self-test.

    Args:
        whole: The engine; it samples.
        server: Where.
        fleet: The engine's.
    """

    def __init__(self, whole: Engine, server: Server, fleet: Fleet) -> None:
        self._whole, self._server, self._fleet = whole, server, fleet
        self.policy_version, self.precision = whole.policy_version, whole.precision

    async def generate(self, request: Request) -> Completion:
        """Sample one turn there, as long as it is up."""
        there = structs.replace(request, dialogue=f"{self._server.url}/{request.dialogue}")
        self._fleet.pin(there.dialogue, self._server)
        return await self._whole.generate(there)

    def release(self, dialogue: str) -> None:
        self._whole.release(f"{self._server.url}/{dialogue}")

    def __str__(self) -> str:
        return f"the vLLM server at {self._server.url}"
