"""Before the first turn: addresses that cannot work, servers that are started here, servers that do not suit the model."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cod_lightning.clients.access import checked_address
from cod_lightning.engines.vllm_server.client import REMEDY, ServerClient, ServerFacts
from cod_lightning.engines.vllm_server.fleet import Server
from cod_lightning.engines.vllm_server.turn import ServerLost
from cod_lightning.errors import ConfigError
from cod_lightning.ranks import rank

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def checked_urls(urls: Sequence[str]) -> list[str]:
    """The addresses without a path. Raises `ConfigError` for those that cannot be servers of one engine."""
    key, expected = "data.engine.urls", "addresses without credentials, such as http://gpu2:8000"
    remedy = "The key comes from data.engine.api_key_variable."
    checked = [checked_address(url, key, expected, remedy).removesuffix("/v1") for url in urls]
    if len(set(checked)) != len(checked):
        raise ConfigError(key, checked, "different servers", "Name each once.")
    return checked


def own_order(urls: list[str]) -> list[str]:
    """All servers, from another one on for each rank: the first dialogues of all ranks do not meet at one server."""
    first = rank() % len(urls) if urls else 0
    return urls[first:] + urls[:first]


def check_facts(facts: Mapping[str, ServerFacts], window: int, adapter_rank: int) -> str:
    """What all servers compute in. Raises `ConfigError` for a window or a room for adapters that is too small, or two kinds of
    precision."""
    for url, server in facts.items():
        if server.adapter_rank < adapter_rank:
            expected = (
                f"a server with room for adapters of rank {adapter_rank} (model.policy.rank), not {server.adapter_rank}"
            )
            flags = f"VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora --max-lora-rank {adapter_rank} or more"
            remedy = f"Start it with {flags}, or set data.engine.merge_adapters to send all weights."
            raise ConfigError("data.engine.urls", url, expected, remedy)
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
