"""Servers: which one serves which dialogue, and how one that is lost comes back."""

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from cod_lightning.engines.base import Completion, Engine, Request
from cod_lightning.engines.vllm_server.client import ServerClient
from cod_lightning.engines.vllm_server.process import ServerProcess
from cod_lightning.engines.vllm_server.turn import ServerLost
from cod_lightning.errors import EngineFailure, EngineRefused

_PAUSE_S = 1.0
"""Between tries to bring a server back."""
_MOST_LOSSES = 3
"""Servers that a turn may lose before it counts as what kills them."""


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
    """Finds a server for a turn: a dialogue stays where it began, a new one goes where the fewest are.

    A server that is lost is brought back while turns go on at the others; where none is left, turns wait, for a while.

    Args:
        servers: All of them, up or not.
        bring_back: Makes one try to get a server up with the right weights, in a thread; raises `EngineFailure` while it is not.
        return_s: How long to try.
    """

    def __init__(self, servers: Sequence[Server], bring_back: Callable[[Server], None], *, return_s: float) -> None:
        self.servers = tuple(servers)
        self._bring_back, self._return_s = bring_back, return_s
        self._homes: dict[str, Server] = {}
        self._tries: dict[str, asyncio.Task[None]] = {}
        self.num_lost = 0
        """Times that a server was lost."""
        self.num_rerouted = 0
        """Dialogues that had to move, which costs their prefix."""

    async def ask(
        self, dialogue: str, body: Mapping[str, Any], known: Callable[[], Collection[str]]
    ) -> tuple[Completion, frozenset[str]]:
        """A turn and the labels of its weights, which are known when it is over; at another server where the first is lost."""
        for _ in range(_MOST_LOSSES):
            server = await self._home(dialogue)
            try:
                turn, versions = await server.client.turn(body)
            except TimeoutError:
                if not await asyncio.to_thread(server.client.healthy):
                    self._lose(server, f"{server.url} does not answer in time")
                raise EngineFailure(
                    f"{server.url} gave no answer within {server.client.timeout_s:g} s (data.engine.timeout_s)"
                ) from None
            except ServerLost as lost:
                self._lose(server, str(lost))
                continue
            if stale := versions.difference(labels := known()):
                self._lose(server, f"{server.url} has weights {sorted(stale)}, not {', '.join(labels)}")
                continue
            return turn, versions
        raise EngineFailure(f"{_MOST_LOSSES} vLLM servers were lost with this turn; {self.troubles()}")

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

    async def _home(self, dialogue: str) -> Server:
        """The dialogue's server, or the first that comes back. Raises `EngineRefused` if none does in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._return_s
        while True:
            home = self._homes.get(dialogue)
            if home is not None and home.up:
                return home
            if up := [server for server in self.servers if server.up]:
                self.num_rerouted += home is not None
                self.pin(dialogue, min(up, key=lambda server: server.num_dialogues))
                continue
            if loop.time() >= until:
                raise EngineRefused(
                    f"no vLLM server came back within {self._return_s:g} s (data.engine.return_s): {self.troubles()}"
                )
            tries = [self._try(server) for server in self.servers]
            await asyncio.wait(tries, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED)

    def _lose(self, server: Server, why: str) -> None:
        """No more turns go there until it is back."""
        self.num_lost += server.up
        server.lose(why)
        self._try(server)

    def _try(self, server: Server) -> "asyncio.Task[None]":
        loop = asyncio.get_running_loop()
        task = self._tries.get(server.url)
        if task is None or task.done() or task.get_loop() is not loop:
            task = self._tries[server.url] = loop.create_task(self._bring(server))
        return task

    async def _bring(self, server: Server) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._return_s
        while loop.time() < until:
            try:
                await asyncio.to_thread(self._bring_back, server)
            except (EngineFailure, OSError) as failure:  # the second where its process or its log cannot be opened
                server.trouble = str(failure)
                await asyncio.sleep(_PAUSE_S)
            else:
                server.serve()
                return


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
