"""Servers that are lost are brought back while turns go on at the others; where none is left, turns wait, for a while."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from cod_lightning.engines.vllm_server.fleet import Fleet, Server
from cod_lightning.engines.vllm_server.turn import ServerAnswer, ServerLost
from cod_lightning.errors import EngineFailure, EngineRefused

_PAUSE_S = 1.0
_MOST_LOSSES = 3
"""Servers that a turn may lose before it counts as what kills them."""


class Watch:
    """Finds a server for a turn.

    Args:
        fleet: The servers.
        bring_back: Makes one try to get a server up with the right weights, in a thread; raises `EngineFailure` while it is not.
        return_s: How long to try.
    """

    def __init__(self, fleet: Fleet, bring_back: Callable[[Server], None], *, return_s: float) -> None:
        self._fleet, self._bring_back, self._return_s = fleet, bring_back, return_s
        self._tries: dict[str, asyncio.Task[None]] = {}
        self.num_lost = 0
        """Times that a server was lost."""

    async def ask(self, dialogue: str, body: Mapping[str, Any], known: Callable[[], Collection[str]]) -> ServerAnswer:
        """A turn sampled by weights of the labels that are known when it is over; at another server where the first is lost."""
        for _ in range(_MOST_LOSSES):
            server = await self.home(dialogue)
            try:
                answer = await server.client.turn(body)
            except TimeoutError:
                if not await asyncio.to_thread(server.client.healthy):
                    self.lose(server, f"{server.url} does not answer in time")
                raise EngineFailure(
                    f"{server.url} gave no answer within {server.client.timeout_s:g} s (data.engine.timeout_s)"
                ) from None
            except ServerLost as lost:
                self.lose(server, str(lost))
                continue
            if stale := answer.versions.difference(labels := known()):
                self.lose(server, f"{server.url} has weights {sorted(stale)}, not {', '.join(labels)}")
                continue
            return answer
        raise EngineFailure(f"{_MOST_LOSSES} vLLM servers were lost with this turn; {self._fleet.troubles()}")

    async def home(self, dialogue: str) -> Server:
        """The dialogue's server, or the first that comes back. Raises `EngineRefused` if none does in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._return_s
        while (server := self._fleet.home(dialogue)) is None:
            if loop.time() >= until:
                raise EngineRefused(
                    f"no vLLM server came back within {self._return_s:g} s (data.engine.return_s): {self._fleet.troubles()}"
                )
            tries = [self._try(server) for server in self._fleet.servers]
            await asyncio.wait(tries, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED)
        return server

    def lose(self, server: Server, why: str) -> None:
        """No more turns go there until it is back."""
        if server.up:
            self.num_lost += 1
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
            except EngineFailure as failure:
                server.trouble = str(failure)
                await asyncio.sleep(_PAUSE_S)
            else:
                server.serve()
                return
