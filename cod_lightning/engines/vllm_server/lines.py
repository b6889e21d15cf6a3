"""Connections of the running event loop: a rollout is one `asyncio.run`, and they live as long as that."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from cod_lightning.engines.vllm_server.client import ServerClient

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class Lines:
    """A client for all servers, and free places at each. Without https it spares the loading of certificates.

    Args:
        max_concurrent: Places of one server.
        timeout_s: Most time for one turn.
        max_retries: Further tries after a lost connection; pauses grow from 0.5 to 8 s.
    """

    def __init__(self, max_concurrent: int, timeout_s: float, max_retries: int) -> None:
        self._max_concurrent, self.timeout_s, self._max_retries = max_concurrent, timeout_s, max_retries
        self._loop: asyncio.AbstractEventLoop | None = None

    async def to(self, server: ServerClient) -> "tuple[AsyncOpenAI, asyncio.Semaphore]":
        """The line to a server, with its key."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._lines: dict[str, tuple[AsyncOpenAI, asyncio.Semaphore]] = {}
            self._life = self._open(server.url.startswith("https"))
            self._client = await anext(self._life)
            self._loop = loop
        if server.url not in self._lines:
            own = self._client.with_options(api_key=server.key or "none")
            self._lines[server.url] = own, asyncio.Semaphore(self._max_concurrent)
        return self._lines[server.url]

    async def _open(self, encrypted: bool) -> "AsyncGenerator[AsyncOpenAI]":
        """Open until the loop ends: `asyncio.run` closes the generators that it has seen."""
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        async with AsyncOpenAI(
            api_key="none",
            base_url="http://none",
            timeout=2 * self.timeout_s,  # the turn's own deadline comes first
            max_retries=self._max_retries,
            http_client=DefaultAsyncHttpxClient(verify=encrypted),
        ) as client:
            yield client
