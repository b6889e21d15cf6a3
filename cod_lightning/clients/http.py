"""One request whose answer is bounded: in time and bytes, and by no other host."""

import asyncio
import functools
import json
import logging
import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cod_lightning.clients.failure import NO_CREDIT, TIMEOUT, TOO_LONG, UNREACHABLE, EndpointFailure, without
from cod_lightning.errors import EngineRefused, in_a_line
from cod_lightning.seeds import derive_seed
from cod_lightning.trusted import leads_here

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

Method = Literal["GET", "POST"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
"""Between tries; the first doubles up to the longest."""
_LONGEST_ASKED_PAUSE_S = 120.0
"""A longer `Retry-After` is not waited for."""
MOST_CONNECTIONS = 1000
"""Of one event loop, to one endpoint."""
_MOST_ERROR_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Bounds:
    """What holds for each request."""

    key: str
    """Sent as a bearer token; empty sends none."""
    timeout_s: float
    """From connecting to the last byte."""
    max_bytes: int
    """Of an answer."""


@dataclass(slots=True)
class Pool:
    """What one event loop has: connections, and the free places for requests."""

    http: "AsyncClient"
    slots: asyncio.Semaphore
    life: AsyncGenerator[None, None] | None = None


class Connections:
    """The connections of each event loop to an endpoint: a rollout is one `asyncio.run`, and they live as long as its loop.

    Args:
        max_concurrent: Most requests in flight in one event loop.
        timeout_s: For each step of a request: to connect, to send, to receive.
    """

    def __init__(self, max_concurrent: int, timeout_s: float) -> None:
        self._max_concurrent, self._timeout_s = max_concurrent, timeout_s
        self.pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        """By event loop, as long as it runs."""

    async def pool(self, url: str) -> Pool:
        loop = asyncio.get_running_loop()
        if (pool := self.pools.get(loop)) is None:
            pool = self.pools[loop] = Pool(_client(url, self._timeout_s), asyncio.Semaphore(self._max_concurrent))
            pool.life = self._closing(loop, pool)
            await anext(pool.life)
        return pool

    async def _closing(self, loop: asyncio.AbstractEventLoop, pool: Pool) -> AsyncGenerator[None, None]:
        """Holds the connections until the loop ends: `asyncio.run` closes the generators that it has seen."""
        try:
            yield
        finally:
            del self.pools[loop]
            await pool.http.aclose()


async def ask(http: "AsyncClient", method: Method, url: str, content: bytes, bounds: Bounds) -> bytes:
    """The body of an answer of status 200. Raises `EndpointFailure`, without the key, for everything else."""
    import httpx2

    key = bounds.key
    try:
        async with asyncio.timeout(bounds.timeout_s):
            return await _answer(http, method, url, content, bounds)
    except EndpointFailure:
        raise
    except (TimeoutError, httpx2.TimeoutException):
        raise EndpointFailure(TIMEOUT, f"no answer within {bounds.timeout_s:g} s") from None
    except httpx2.TransportError as error:
        cause = error.__cause__ or error
        raise EndpointFailure(UNREACHABLE, without(key, f"{type(cause).__name__}: {cause}")) from None
    except Exception as error:
        raise EndpointFailure("broken request", without(key, f"{type(error).__name__}: {error}")) from None


def ask_once(method: Method, url: str, content: bytes, bounds: Bounds) -> bytes:
    """As `ask`, from where no event loop runs, over a connection of its own."""

    async def over_own_connection() -> bytes:
        async with _client(url, bounds.timeout_s) as http:
            return await ask(http, method, url, content, bounds)

    return asyncio.run(over_own_connection())


def pause_s(failure: EndpointFailure, content: bytes, tries: int) -> float:
    """Seconds until the next try: what the endpoint asks for, else 0.5 s, doubled with every try, up to 30 s, less up to a
    quarter that is derived from the request."""
    if failure.retry_after_s is not None:
        return failure.retry_after_s
    share = derive_seed("pause before a retry", content.decode(), tries) / 2**63
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (tries - 1)) * (1 - share / 4)


def _client(url: str, timeout_s: float) -> "AsyncClient":
    """For one host; without https it spares the loading of certificates. No proxy is used to an address of this machine: it would
    get the key.

    Raises `EngineRefused` for a proxy, or certificates, of this process's environment that cannot be used.
    """
    import httpx2

    for name in ("httpcore2", "httpx2"):  # their debug output holds headers, in which an endpoint may repeat the key
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger(name).level))
    limits = httpx2.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=100)
    try:
        return httpx2.AsyncClient(
            verify=_certificates() if url.startswith("https") else False,
            timeout=timeout_s,
            limits=limits,
            follow_redirects=False,
            trust_env=not leads_here(url),
        )
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
        said = f"{url} cannot be asked with the HTTP_PROXY, HTTPS_PROXY, ALL_PROXY or SSL_CERT_FILE of this environment"
        remedy = "Correct or unset them, or add its host to NO_PROXY."
        raise EngineRefused(f"{said} ({in_a_line(error, 200)}). {remedy}") from None


@functools.cache
def _certificates() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


async def _answer(http: "AsyncClient", method: Method, url: str, content: bytes, bounds: Bounds) -> bytes:
    """The body.

    Raises:
        EndpointFailure: `too long` for a body above `max_bytes`; `redirect`, which is not followed, since another host would get
            the key; `HTTP 503` and the like for any other status than 200.
    """
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if bounds.key:
        headers["Authorization"] = f"Bearer {bounds.key}"
    async with http.stream(method, url, content=content, headers=headers) as response:
        if 300 <= response.status_code < 400:
            raise EndpointFailure("redirect", f"HTTP {response.status_code}; name the final address")
        failed, most = response.status_code >= 400, bounds.max_bytes
        body = await _body(response, min(most, _MOST_ERROR_BYTES) if failed else most, cut=failed)
        if response.status_code != 200:
            raise _status_failure(response, body, bounds.key)
        return body


def _status_failure(response: "Response", body: bytes, key: str) -> EndpointFailure:
    """What a status other than 200 means, in the endpoint's own words where its error is of the usual form."""
    kind, message, code = f"HTTP {response.status_code}", body.decode("utf-8", "replace"), None
    try:
        error = json.loads(body)["error"]
        message, code = str(error["message"]), error.get("code")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    if response.status_code == 429 and code == "insufficient_quota":
        kind = NO_CREDIT
    try:
        asked = float(response.headers.get("retry-after", ""))
    except ValueError:
        asked = -1.0
    return EndpointFailure(kind, without(key, message), asked if 0 <= asked <= _LONGEST_ASKED_PAUSE_S else None)


async def _body(response: "Response", most: int, *, cut: bool) -> bytes:
    """The body as it came; above `most` bytes it is cut, or else a failure. Compressed ones, not asked for, are refused."""
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise EndpointFailure("invalid encoding", "a compressed body, which was not asked for")
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > most:
            if cut:
                break
            raise EndpointFailure(TOO_LONG, f"the body has more than {most:,} bytes")
    return bytes(body[:most])
