"""One POST whose answer is bounded: bytes on the wire, bytes after decompression, and the hosts that it may come from."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from cod_lightning.clients.failure import TOO_LONG, EndpointFailure

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

_MOST_ERROR_BYTES = 65_536
_MOST_REDIRECTS = 3
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Status, headers and the decompressed body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def post(client: "AsyncClient", url: str, content: bytes, headers: Mapping[str, str], max_bytes: int) -> Reply:
    """The endpoint's answer; follows redirects (307, 308) that stay at its own host.

    Raises:
        EndpointFailure: `too long` for a body above `max_bytes`, compressed or not; `redirect` for another place.
    """
    for _ in range(_MOST_REDIRECTS + 1):
        async with client.stream("POST", url, content=content, headers=dict(headers)) as response:
            if 300 <= response.status_code < 400:
                url = _next_url(url, response)
                continue
            failed = response.status_code >= 400
            body = await _body(response, min(max_bytes, _MOST_ERROR_BYTES) if failed else max_bytes, cut=failed)
            return Reply(status=response.status_code, headers=response.headers, body=body)
    raise EndpointFailure("redirect", f"more than {_MOST_REDIRECTS} redirects")


def _next_url(url: str, response: "Response") -> str:
    """Where the redirect leads, if it keeps the method, the host and the port, and does not give up encryption."""
    status = f"HTTP {response.status_code}"
    if response.status_code not in (307, 308):
        raise EndpointFailure("redirect", f"{status}, which turns a POST into a GET; name the final address")
    target = ""
    try:
        target = urljoin(url, response.headers.get("location", ""))
        old, new = urlsplit(url), urlsplit(target)
        same = (new.scheme, new.hostname, _port(new.scheme, new.port)) == (
            old.scheme,
            old.hostname,
            _port(old.scheme, old.port),
        )
        encrypted = (
            (old.scheme, new.scheme) == ("http", "https")
            and old.hostname == new.hostname
            and {old.port, new.port} == {None}
        )
    except ValueError:
        same = encrypted = False  # a port that is no number
    if not (same or encrypted):
        raise EndpointFailure("redirect", f"{status} to another host, which would get the key; name the final address")
    return target


def _port(scheme: str, port: int | None) -> int | None:
    return port or _DEFAULT_PORTS.get(scheme)


async def _body(response: "Response", most: int, *, cut: bool) -> bytes:
    """The decompressed body; above `most` bytes it is cut, or else a failure."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise EndpointFailure("invalid encoding", "a body compressed by other means than gzip, which was asked for")
    unpack = None if encoding in ("", "identity") else zlib.decompressobj(wbits=47)  # 47: a header of gzip or of zlib
    body, num_raw = bytearray(), 0
    async for chunk in response.aiter_raw():
        num_raw += len(chunk)
        try:
            body += chunk if unpack is None else unpack.decompress(chunk, most + 1 - len(body))
        except zlib.error:
            raise EndpointFailure("invalid encoding", "a body that does not decompress") from None
        if max(len(body), num_raw) > most:
            if cut:
                break
            raise EndpointFailure(TOO_LONG, f"the body has more than {most:,} bytes")
    return bytes(body[:most])
