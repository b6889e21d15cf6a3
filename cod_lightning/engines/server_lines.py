"""Connections of the running event loop: a rollout is one `asyncio.run`, and they live as long as that."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from cod_lightning.engines.server_client import ServerClient

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class Lines:
    """A client and free places for each server.

    Args:
        max_concurrent: Places of one server.
        timeout_s: For each wait on a connection.
        max_retries: Further tries after a lost connection; pauses grow from 0.5 to 8 s.
    """

    def __init__(self, max_concurrent: int, timeout_s: float, max_retries: int) -> None:
        self._max_concurrent, self._timeout_s, self._max_retries = max_concurrent, timeout_s, max_retries
        self._loop: asyncio.AbstractEventLoop | None = None

    async def to(self, server: ServerClient) -> "tuple[AsyncOpenAI, asyncio.Semaphore]":
        """The line to a server."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._life = self._open()  # `asyncio.run` closes the generators that it has seen
            self._stack, self._lines = await anext(self._life)
            self._loop = loop
        if server.url not in self._lines:
            from openai import AsyncOpenAI

            client = AsyncOpenAI(
                api_key=server.key or "none",
                base_url=server.url,
                timeout=self._timeout_s,
                max_retries=self._max_retries,
            )
            self._lines[server.url] = (client, asyncio.Semaphore(self._max_concurrent))
            self._stack.push_async_callback(client.close)
        return self._lines[server.url]

    async def _open(
        self,
    ) -> "AsyncGenerator[tuple[AsyncExitStack, dict[str, tuple[AsyncOpenAI, asyncio.Semaphore]]]]":
        async with AsyncExitStack() as stack:
            yield stack, {}
