"""Servers: which cannot work, how those of this machine start, which one serves which dialogue, how one that is lost comes back."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec import structs

from cod_lightning.clients.access import checked_address
from cod_lightning.engines.base import Completion, Engine, Request
from cod_lightning.engines.vllm_server.client import REMEDY, ServerClient, ServerFacts, ServerLost
from cod_lightning.engines.vllm_server.process import ServerProcess
from cod_lightning.errors import ConfigError, EngineFailure, EngineRefused

_PAUSE_S = 1.0
"""Between tries to bring a server back."""
_MOST_LOSSES = 3
"""Servers that a turn may lose before it counts as what kills them."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


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


def checked_urls(urls: Sequence[str]) -> list[str]:
    """The addresses without a path. Raises `ConfigError` for those that cannot be servers of one engine."""
    key, expected = "data.engine.urls", "addresses without credentials, such as http://gpu2:8000"
    remedy = "The key comes from data.engine.api_key_variable."
    checked = [checked_address(url, key, expected, remedy).removesuffix("/v1") for url in urls]
    if len(set(checked)) != len(checked):
        raise ConfigError(key, checked, "different servers", "Name each once.")
    return checked


def check_facts(facts: Mapping[str, ServerFacts], window: int, adapter_rank: int) -> str:
    """What all servers compute in. Raises `ConfigError` for a window or a room for adapters that is too small, or two kinds of
    precision."""
    for url, server in facts.items():
        if server.adapter_rank < adapter_rank:
            expected = (
                f"a server with room for adapters of rank {adapter_rank} (model.policy.rank), not {server.adapter_rank}"
            )
            flags = f"VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora --max-lora-rank {adapter_rank} or more"
            raise ConfigError("data.engine.urls", url, expected, f"Start it with {flags}.")
        if server.window < window:
            expected = f"at least {window} (model.policy.window), not {server.window}"
            remedy = f"Start it with --max-model-len {window}, or lower model.policy.window."
            raise ConfigError("data.engine.urls", url, f"a server whose window is {expected}", remedy)
    kinds = {server.dtype for server in facts.values()}
    if len(kinds) > 1:
        found = ", ".join(f"{url} {fact.dtype}" for url, fact in facts.items())
        raise ConfigError("data.engine.urls", found, "servers of one precision", "Start all with the same --dtype.")
    return kinds.pop()


def start_all(servers: Sequence[Server]) -> None:
    """Start those that are to run on this machine; all of them answer afterwards, or none runs.

    Raises `EngineFailure` with the end of the log of one that does not.
    """
    own = [(server, server.process) for server in servers if server.process is not None]
    try:
        for _, process in own:
            process.start()
        for server, process in own:
            process.wait(server.client.healthy)
    except BaseException:
        for _, process in own:
            process.stop()
        raise


def see_reachable(client: ServerClient, wait_s: float) -> None:
    """Raises `ConfigError` for a server that is not there within that time, or was started otherwise than it has to be."""
    until = time.monotonic() + wait_s
    while True:
        try:
            client.facts()
            return
        except ServerLost as lost:
            if time.monotonic() < until:
                time.sleep(min(1.0, wait_s))
                continue
            waited = f" within {wait_s:g} s (data.engine.wait_s)" if wait_s else ""
            expected = f"a vLLM server that answers{waited}: {lost}"
            raise ConfigError("data.engine.urls", client.url, expected, f"Check the address. {REMEDY}") from None


def on_all(items: Sequence[_Item], work: Callable[[_Item], _Result]) -> list[_Result]:
    """The work on all of them at the same time."""
    with ThreadPoolExecutor(max(1, len(items))) as pool:
        return list(pool.map(work, items))


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
                if not server.up:  # else a sync has brought it back meanwhile
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
