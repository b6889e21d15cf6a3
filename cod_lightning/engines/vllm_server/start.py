"""Before the first turn: settings that cannot work, servers that are started here, servers that do not suit the model."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from cod_lightning.clients.http import MOST_CONNECTIONS
from cod_lightning.engines.vllm_server.client import REMEDY, ServerClient, ServerFacts
from cod_lightning.engines.vllm_server.fleet import Server
from cod_lightning.engines.vllm_server.process import LocalServers, ServerProcess
from cod_lightning.engines.vllm_server.turn import ServerLost
from cod_lightning.errors import ConfigError
from cod_lightning.ranks import rank

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def checked_url(url: str) -> str:
    """The address without a path. Raises `ConfigError` if it is none, or holds a secret."""
    parts = urlsplit(url)
    secret = parts.username or parts.password or parts.query
    if parts.scheme not in ("http", "https") or not parts.hostname or secret:
        shown = "one with credentials or a query" if secret else url or "empty"
        expected = "addresses without credentials, such as http://gpu2:8000"
        raise ConfigError("data.engine.urls", shown, expected, "The key comes from data.engine.api_key_variable.")
    return url.rstrip("/").removesuffix("/v1")


def own_order(urls: list[str]) -> list[str]:
    """All servers, from another one on for each rank: the first dialogues of all ranks do not meet at one server."""
    first = rank() % len(urls) if urls else 0
    return urls[first:] + urls[:first]


def check_settings(
    urls: list[str],
    start: int,
    *,
    max_concurrent: int,
    max_retries: int,
    timeout_s: float,
    return_s: float,
    sync_timeout_s: float,
) -> None:
    """Raise `ConfigError` for numbers that cannot work."""
    if start < 0 or not (urls or start):
        raise ConfigError("data.engine.start", start, "at least 1 where data.engine.urls is empty", "Name servers.")
    if len({urlsplit(url).scheme for url in urls}) > 1:
        raise ConfigError("data.engine.urls", urls, "all http or all https", "Change some.")
    if len(set(urls)) != len(urls):
        raise ConfigError("data.engine.urls", urls, "different servers", "Name each once.")
    if not 1 <= max_concurrent <= MOST_CONNECTIONS:
        expected = f"from 1 to {MOST_CONNECTIONS}"
        raise ConfigError("data.engine.max_concurrent", max_concurrent, expected, "256 is the default.")
    if max_retries < 0:
        raise ConfigError("data.engine.max_retries", max_retries, "at least 0", "2 is the default.")
    for key, value in (("timeout_s", timeout_s), ("return_s", return_s), ("sync_timeout_s", sync_timeout_s)):
        if not 0 < value < float("inf"):
            raise ConfigError(f"data.engine.{key}", value, "above 0 and finite", "Leave it out for the default.")


def check_facts(facts: Mapping[str, ServerFacts], window: int, adapter_rank: int) -> str:
    """What all servers compute in. Raises `ConfigError` for a window or a room for adapters that is too small, or two kinds of
    precision."""
    for url, told in facts.items():
        if told.adapter_rank < adapter_rank:
            expected = (
                f"a server with room for adapters of rank {adapter_rank} (model.policy.rank), not {told.adapter_rank}"
            )
            flags = f"VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora --max-lora-rank {adapter_rank} or more"
            remedy = f"Start it with {flags}, or set data.engine.merge_adapters to send all weights."
            raise ConfigError("data.engine.urls", url, expected, remedy)
        if told.window < window:
            expected = f"at least {window} (model.policy.window), not {told.window}"
            remedy = f"Start it with --max-model-len {window}, or lower model.policy.window."
            raise ConfigError("data.engine.urls", url, f"a server whose window is {expected}", remedy)
    kinds = {told.dtype for told in facts.values()}
    if len(kinds) > 1:
        told = ", ".join(f"{url} {fact.dtype}" for url, fact in facts.items())
        raise ConfigError("data.engine.urls", told, "servers of one precision", "Start all with the same --dtype.")
    return kinds.pop()


def start_all(
    how: LocalServers,
    num: int,
    *,
    model: Path,
    dtype: str,
    window: int,
    logs: Path,
    client: Callable[[str], ServerClient],
    transfer: bool,
    sleep: bool,
    adapter_rank: int,
    key: str,
) -> list[Server]:
    """Servers on this machine, all of which answer. Raises `EngineFailure` with the end of the log of one that does not."""
    processes = [
        ServerProcess(
            how,
            index=index,
            model=model,
            dtype=dtype,
            window=window,
            log=logs / f"vllm_server_{index}.log",
            key=key,
            transfer=transfer,
            sleep=sleep,
            adapter_rank=adapter_rank,
        )
        for index in range(num * rank(), num * (rank() + 1))
    ]
    servers = [Server(client(process.url), process) for process in processes]
    try:
        for process in processes:
            process.start()
        for server, process in zip(servers, processes, strict=True):
            process.wait(server.client.healthy)
    except BaseException:
        for process in processes:
            process.stop()
        raise
    return servers


def see_reachable(client: ServerClient) -> None:
    """Raises `ConfigError` for a server that is not there, or was started otherwise than it has to be."""
    try:
        client.facts()
    except ServerLost as lost:
        expected = f"a vLLM server that answers: {lost}"
        raise ConfigError("data.engine.urls", client.url, expected, f"Check the address. {REMEDY}") from None


def on_all(items: Sequence[_Item], work: Callable[[_Item], _Result]) -> list[_Result]:
    """The work on all of them at the same time."""
    with ThreadPoolExecutor(max(1, len(items))) as pool:
        return list(pool.map(work, items))
