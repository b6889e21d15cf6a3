"""A session with an MCP server, from the first call to the end of a task: tools, calls, deadlines.

Needs the extra `mcp` (MIT). The official client runs in one thread of this process, whose loop all sessions share. What a server
says is data: an error of a call is a result, a lost or silent server raises `EnvironmentFailure`.
"""

import asyncio
import json
import logging
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from cod_lightning.envs.apart import command as apart
from cod_lightning.envs.async_world import WORLD_LOOP
from cod_lightning.errors import EnvironmentFailure, WorldHung, described

MOST_TOOLS, MOST_LETTERS = 256, 20_000
"""Tools of a server, and letters of a tool's schema, of a result, of instructions."""
_MOST_BYTES = 2**24
"""Of an answer over HTTP; letters of a line over stdio."""
_LOST = -32000
"""JSON-RPC's code of a closed connection, as the client gives it."""
# The client's loggers show names that a policy made up as they are, and pages for each line that is no message.
logging.getLogger("mcp").setLevel(logging.CRITICAL)
for _others in (logging.getLogger("client"), logging.getLogger()):
    _others.addFilter(lambda record: Path(record.pathname).parts[-3:-2] != ("mcp",))


class RecordedCall(NamedTuple):
    """One call, and what came back."""

    name: str
    arguments: dict[str, Any]
    shown: str
    failed: bool


class McpSession:
    """A connection to a server.

    Args:
        server: A command with its arguments (stdio), or an address (streamable HTTP).
        timeout_s: Seconds that the beginning, and each call, may take.
    """

    def __init__(self, server: Sequence[str] | str, timeout_s: float) -> None:
        self.server, self.timeout_s = server, timeout_s
        self.tools: list[dict[str, Any]] = []
        """As chat templates list them."""
        self.instructions = ""
        WORLD_LOOP.begin(self._begin()).result()

    def call(self, name: str, arguments: dict[str, Any]) -> RecordedCall:
        """Call a tool. Raises `WorldHung` after its time, and `EnvironmentFailure` where the server is lost."""
        return WORLD_LOOP.begin(self._call(name, arguments)).result()

    def close(self) -> None:
        """End the connection, and a server that was started for it. Never raises."""
        WORLD_LOOP.begin(self._end()).result()

    def leave(self) -> None:
        """As `close`, without waiting for it."""
        WORLD_LOOP.begin(self._end())

    async def _begin(self) -> None:
        self._over, ready = asyncio.Event(), asyncio.Event()
        self._holder = asyncio.ensure_future(self._hold(ready))
        begun = asyncio.ensure_future(ready.wait())
        await asyncio.wait({self._holder, begun}, timeout=self.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if ready.is_set():
            return
        hung = not self._holder.done()
        await self._end()
        if hung:
            raise WorldHung(f"{self}: no session within {self.timeout_s:g} s")
        error = self._holder.exception() if not self._holder.cancelled() else None
        raise EnvironmentFailure(f"{self}: no session: {_said(error)}")

    async def _hold(self, ready: asyncio.Event) -> None:
        """The connection as one task: the client wants to be left where it was entered."""
        from mcp import ClientSession  # pyright: ignore[reportMissingImports]

        async with AsyncExitStack() as stack:
            streams = await stack.enter_async_context(await self._transport(stack))
            self._session: Any = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
            self.instructions = str((await self._session.initialize()).instructions or "")[:MOST_LETTERS]
            self.tools = [_listed(tool) for tool in await self._all_tools()]
            ready.set()
            await self._over.wait()

    async def _transport(self, stack: AsyncExitStack) -> Any:
        if isinstance(self.server, str):
            from mcp.client import streamable_http as http  # pyright: ignore[reportMissingImports]

            made = http.create_mcp_http_client()  # pyright: ignore[reportPrivateImportUsage]
            client = await stack.enter_async_context(made)
            client.event_hooks = {"response": [_bounded]}
            return http.streamable_http_client(self.server, http_client=client)
        from mcp.client import stdio  # pyright: ignore[reportMissingImports]

        _bound_lines(stdio)
        command, *arguments = apart(self.server)
        errors = stack.enter_context(tempfile.TemporaryFile("w"))  # noqa: SIM115  (entered)
        return stdio.stdio_client(stdio.StdioServerParameters(command=command, args=arguments), errlog=errors)

    async def _all_tools(self) -> list[Any]:
        from mcp.types import PaginatedRequestParams  # pyright: ignore[reportMissingImports]

        found, cursor = list[Any](), None
        while True:
            page = await self._session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            found += page.tools
            cursor = page.model_dump(by_alias=True).get("nextCursor")
            if len(found) > MOST_TOOLS:
                raise ValueError(f"it has more than {MOST_TOOLS} tools")
            if cursor is None:
                return found

    async def _call(self, name: str, arguments: dict[str, Any]) -> RecordedCall:
        if self._holder.done():
            raise EnvironmentFailure(f"{self}: the connection was lost")
        calling = asyncio.ensure_future(self._session.call_tool(name, arguments))
        await asyncio.wait({calling, self._holder}, timeout=self.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not calling.done():
            calling.cancel()
            lost = self._holder.done()
            await self._end()
            if lost:
                raise EnvironmentFailure(f"{self}: the connection was lost")
            raise WorldHung(f"{self}: {name} gave no answer within {self.timeout_s:g} s")
        try:
            result = calling.result().model_dump(by_alias=True, mode="json")
            return RecordedCall(name, arguments, _text(result), bool(result.get("isError")))
        except Exception as error:
            said = getattr(error, "error", None)  # of JSON-RPC
            if said is None or said.code == _LOST:
                await self._end()
                raise EnvironmentFailure(f"{self}: {name}: {_said(error)}") from error
            return RecordedCall(name, arguments, str(said.message)[:MOST_LETTERS], True)

    async def _end(self) -> None:
        self._over.set()
        await asyncio.wait({self._holder}, timeout=self.timeout_s)
        self._holder.cancel()

    def __str__(self) -> str:
        return self.server if isinstance(self.server, str) else self.server[0]


async def _bounded(response: Any) -> None:
    """Let the client read so much of a response and no more."""
    whole = response.aiter_bytes

    async def read(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        left = _MOST_BYTES
        async for part in whole(chunk_size):
            if (left := left - len(part)) < 0:
                raise ValueError(f"it answers with more than {_MOST_BYTES:,} bytes")
            yield part

    response.aiter_bytes = read


def _bound_lines(stdio: Any) -> None:
    """Let the client, which keeps a line until it is whole, read so much of one and no more: a longer one ends the connection."""
    from anyio import EndOfStream
    from anyio.streams.text import TextReceiveStream

    class Bounded(TextReceiveStream):
        length = 0

        async def receive(self) -> str:
            text = await super().receive()
            _, newline, rest = text.rpartition("\n")
            self.length = len(rest) + (0 if newline else self.length)
            if self.length > _MOST_BYTES:
                raise EndOfStream
            return text

    stdio.TextReceiveStream = Bounded


def _listed(tool: Any) -> dict[str, Any]:
    """As chat templates list it. Raises `ValueError` for one that is too long."""
    about = tool.model_dump(by_alias=True, mode="json")
    function = {
        "name": about["name"],
        "description": about.get("description") or "",
        "parameters": about["inputSchema"],
    }
    if len(json.dumps(function)) > MOST_LETTERS:
        raise ValueError(f"its tool {str(about['name'])[:40]!r} has a schema of more than {MOST_LETTERS:,} letters")
    return {"type": "function", "function": function}


def _text(result: dict[str, Any]) -> str:
    """What a result shows: its texts; of anything else the kind."""
    parts = [part["text"] if part.get("type") == "text" else f"({part.get('type')})" for part in result["content"]]
    shown = "\n".join(parts) or json.dumps(result.get("structuredContent") or {})
    shown = shown if len(shown) <= MOST_LETTERS else f"{shown[:MOST_LETTERS]}\n..."
    return shown.encode("utf-8", "replace").decode()


def _said(error: BaseException | None) -> str:
    """The first error of a group, in a line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return "it ended" if error is None else described(error)[:500]
