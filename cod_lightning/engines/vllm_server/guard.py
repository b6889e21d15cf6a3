"""Asks for the key at every route of a vLLM server; vLLM's own `--api-key` leaves those of its development mode open."""

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

KEY = "VLLM_API_KEY"
_Message = MutableMapping[str, Any]
_REFUSAL = b'{"error": {"message": "no key, or a wrong one", "code": 401}}'


class KeyGuard:
    """ASGI middleware that answers 401 to a request without `Authorization: Bearer KEY`, before vLLM sees the request.

    Args:
        app: vLLM's.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._expected = f"Bearer {os.environ[KEY]}".encode()

    async def __call__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        sent = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] == "lifespan" or hmac.compare_digest(sent, self._expected):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(_REFUSAL)).encode())]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": _REFUSAL})
