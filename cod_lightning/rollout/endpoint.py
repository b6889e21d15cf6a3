"""The policy behind HTTP on the loopback, for agent programs: what a task's program asks, at its own port, is recorded.

    POST /v1/chat/completions      the chat dialect of OpenAI; text, tools, streams
    POST /inference/v1/generate    token ids in, ids and log-probs out
    GET  /v1/models                the one model

Bodies are bounded, and the time that one may take to arrive; a request without the key is refused before its body is read.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct

from cod_lightning.envs.own_loop import Access
from cod_lightning.errors import EnvironmentFailure, described
from cod_lightning.rollout.chat_request import BadRequest, ChatRequest
from cod_lightning.rollout.recorder import Closed, Recorder
from cod_lightning.types import StopReason

MOST_BYTES = 2 * 2**20
"""Of a request's body; one that is compressed is read as it is, and is no JSON."""
MOST_CONNECTIONS = 128
"""Of one program at a time, and as many as come at one moment, for each takes a file of this process. A further one closes the
oldest."""
BODY_S = 30.0
"""Within which it has to arrive."""
_CLOSE_S = 0.5
_LOG = logging.getLogger(__name__)
_LOG.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
"""Without requests that are no HTTP: their programs get an answer, and could fill the terminal."""


class _SamplingParams(Struct):
    max_tokens: int | None = None


class _TokenRequest(Struct):
    """A request of the token dialect, as `verifiers` sends it; the sampling stays the policy's own."""

    token_ids: list[int]
    sampling_params: _SamplingParams = msgspec.field(default_factory=_SamplingParams)


@asynccontextmanager
async def serving(recorder: Recorder) -> AsyncIterator[Access]:
    """The recorder answers under this access until the block ends, at a port of its own: no program can take another's connections.

    Raises `EnvironmentFailure` where no server can be started, and what the engine raises as it closes.
    """
    server = _Server(recorder, secrets.token_urlsafe(24))
    try:
        yield Access(base_url=f"http://127.0.0.1:{await server.start()}/v1", key=server.key)
    finally:
        try:
            await recorder.close()
        finally:
            await server.close()


class _Server:
    """An HTTP server for one task's program."""

    def __init__(self, recorder: Recorder, key: str) -> None:
        self.recorder, self.key = recorder, key
        self._listening: asyncio.Server | None = None
        app = web.Application(client_max_size=MOST_BYTES)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/inference/v1/generate", self._tokens)
        app.router.add_get("/v1/models", self._models)
        self.runner = web.AppRunner(
            app, access_log=None, logger=_LOG, handle_signals=False, shutdown_timeout=_CLOSE_S, auto_decompress=False
        )

    async def start(self) -> int:
        """Its port. Raises `EnvironmentFailure`."""
        try:
            await self.runner.setup()
            self._listening = await asyncio.get_running_loop().create_server(self._connected, "127.0.0.1", 0)
        except OSError as error:
            raise EnvironmentFailure(
                f"no server for its program could be started on 127.0.0.1: {described(error)}"
            ) from error
        return self._listening.sockets[0].getsockname()[1]

    def _connected(self) -> asyncio.BaseProtocol:
        serves = self.runner.server
        assert serves is not None
        lines = [one.transport for one in serves.connections if one.transport and not one.transport.is_closing()]
        for line in lines[: max(0, len(lines) - MOST_CONNECTIONS + 1)]:
            line.abort()
        return serves()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        await self.runner.cleanup()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        async def answer(body: bytes) -> web.StreamResponse:
            asked = ChatRequest.read(body)
            reply = await self.recorder.chat(asked)
            if not asked.stream:
                return web.json_response(reply.body())
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
            await response.prepare(request)
            lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in reply.chunks()]
            await response.write("".join([*lines, "data: [DONE]\n\n"]).encode())
            await response.write_eof()
            return response

        return await self._answered(request, answer)

    async def _tokens(self, request: web.Request) -> web.StreamResponse:
        async def answer(body: bytes) -> web.StreamResponse:
            try:
                asked = msgspec.json.decode(body, type=_TokenRequest)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise BadRequest(f"the body is no token request: {error}") from None
            turn = await self.recorder.tokens(asked.token_ids, asked.sampling_params.max_tokens)
            scored = zip(turn.action_ids, turn.behaviour_logprobs, strict=True)
            listed: list[dict[str, Any]] = [{"token": f"token_id:{one}", "logprob": p} for one, p in scored]
            choice = {
                "index": 0,
                "token_ids": list(turn.action_ids),
                "logprobs": {"content": listed},
                "finish_reason": "stop" if turn.stop is StopReason.STOP else "length",
            }
            return web.json_response({"request_id": f"turn-{len(self.recorder.turns)}", "choices": [choice]})

        return await self._answered(request, answer)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        if not self._knows(request):
            return _error(401, "this is not the task's key")
        return web.json_response({"object": "list", "data": [{"id": "policy", "object": "model", "created": 0}]})

    async def _answered(
        self, request: web.Request, answer: Callable[[bytes], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not self._knows(request):
            return _error(401, "this is not the task's key")
        try:
            async with asyncio.timeout(BODY_S):
                body = await request.read()
        except TimeoutError:
            return _error(408, f"the body did not arrive within {BODY_S:g} s")
        except ConnectionError:
            return _error(400, "the connection was closed before the body arrived")  # it has no reader
        except web.HTTPRequestEntityTooLarge:
            return _error(413, f"the body has more than {MOST_BYTES:,} bytes")
        try:
            return await answer(body)
        except BadRequest as error:
            return _error(400, str(error))
        except Closed:
            return _error(
                410, "the task is over: its turns are used up, the policy's window is full, or its engine failed"
            )

    def _knows(self, request: web.Request) -> bool:
        """Whether the request has the task's key."""
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        shown = bearer or request.headers.get("X-Session-ID", "")
        return secrets.compare_digest(shown.encode("utf-8", "surrogateescape"), self.key.encode())


def _error(status: int, message: str) -> web.StreamResponse:
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    return web.json_response({"error": {"message": message, "type": kind, "code": str(status)}}, status=status)
