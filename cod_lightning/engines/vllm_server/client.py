"""One vLLM server over HTTP: what it is, what it is told, and a turn that it samples.

Connections, time-outs and retries with growing pauses are the `openai` library's.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from cod_lightning.clients.failure import without
from cod_lightning.engines.vllm_server.turn import ServerAnswer, ServerLost, ServerRefused, answer_of, turn_body
from cod_lightning.errors import ConfigError, EngineFailure

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

FLAGS = "--logprobs-mode processed_logprobs --enable-scale-out --skip-tokenizer-init --generation-config vllm"
"""What a server has to be started with, beside its model."""
REMEDY = f"Start it with VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model ... {FLAGS}"
GENERATE = "/inference/v1/generate"
_RESET_S = 10.0
"""Most time for blocks of aborted requests to be given up, before a prefix cache counts as stuck."""


@dataclass(frozen=True, kw_only=True)
class ServerFacts:
    """What a server says of itself."""

    window: int
    dtype: str
    adapter_rank: int
    """Largest rank of an adapter that it has room for; 0 where it takes none while it runs."""


class ServerClient:
    """Control calls block; `turn` is a coroutine. No call outlasts its time-out, and the key is never shown."""

    def __init__(self, url: str, key: str, control_timeout_s: float) -> None:
        self.url, self.key, self._timeout_s = url, key, control_timeout_s

    def healthy(self) -> bool:
        """Whether it answers at all, and its engine lives."""
        try:
            self._get("/health", timeout_s=10.0)
        except EngineFailure:
            return False
        return True

    def facts(self) -> ServerFacts:
        """Its settings. Raises `ConfigError` for those that would give wrong log-probs, `EngineFailure` if it cannot be asked."""
        try:
            told = self._get("/server_info?config_format=json")["vllm_config"]
            config, room = told["model_config"], told.get("lora_config") or {}
        except (ServerRefused, KeyError, TypeError) as error:
            if "HTTP 401" in str(error):
                remedy = "Put its key into the environment variable that data.engine.api_key_variable names."
                raise ConfigError("data.engine.urls", self.url, "a server that accepts our key", remedy) from None
            expected = "a vLLM server of version 0.32 or newer in development mode (/server_info is missing)"
            raise ConfigError("data.engine.urls", self.url, expected, REMEDY) from None
        if (mode := config.get("logprobs_mode")) != "processed_logprobs":
            expected = (
                f"a server with --logprobs-mode processed_logprobs (its own is {mode}), since the ratio needs them"
            )
            raise ConfigError("data.engine.urls", self.url, expected, REMEDY)
        try:
            self._post(GENERATE, turn_body([0], max_new_tokens=1, seed=0, temperature=1.0, top_p=1.0, stop_ids=[]))
        except ServerRefused as refusal:
            expected = f"a server that takes token ids at {GENERATE}; it said: {refusal}"
            raise ConfigError("data.engine.urls", self.url, expected, REMEDY) from None
        return ServerFacts(
            window=int(config["max_model_len"]),
            dtype=str(config["dtype"]).removeprefix("torch."),
            adapter_rank=int(room["max_lora_rank"]) if room and self._takes_adapters() else 0,
        )

    def version(self) -> str:
        """Label of its weights; `default` after a start."""
        return str(self._get("/weight_info").get("weight_version"))

    def load(self, folder: str, label: str) -> None:
        """Take the weights of a folder that the server can read."""
        self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}})
        self.settle(label)

    def load_adapter(self, folder: str, label: str, before: str) -> None:
        """Take the adapter of a folder that the server can read, by a name that it has never had; forget the one `before`."""
        self._post("/v1/load_lora_adapter", {"lora_name": label, "lora_path": folder})
        with suppress(ServerRefused):  # it was started since
            self._post("/v1/unload_lora_adapter", {"lora_name": before})
        self.settle(label)

    def settle(self, label: str) -> None:
        """New weights are there: forget all cached prefixes, then go by the new label."""
        until = time.monotonic() + _RESET_S
        while not self._post("/reset_prefix_cache").get("success"):
            if time.monotonic() > until:
                raise EngineFailure(
                    f"{self.url} does not give up its prefix cache, which belongs to the weights before"
                )
            time.sleep(0.1)
        self._post("/update_weight_version", {"new_version": label})

    def sleep(self, *, keep: bool) -> None:
        """Give weights and cache back until `wake`; `keep` has the weights wait in the memory of the server's host."""
        self._post(f"/sleep?level={1 if keep else 2}&mode=abort")

    def wake(self, part: str) -> None:
        """Make room for `weights` or the `kv_cache` again."""
        self._post(f"/wake_up?tags={part}")

    async def turn(self, client: "AsyncOpenAI", body: Mapping[str, Any]) -> ServerAnswer:
        """One sampled turn."""
        try:
            return answer_of(await client.post(self.url + GENERATE, body=dict(body), cast_to=object))
        except EngineFailure:
            raise
        except Exception as error:
            raise self._meant(error, lost=404) from None  # an adapter that it no longer knows

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """A control call of somebody else's, say of a weight transfer."""
        return self._post(path, body)

    def get(self, path: str) -> Mapping[str, Any]:
        """A question of somebody else's."""
        return self._get(path)

    def _get(self, path: str, timeout_s: float | None = None) -> Any:
        try:
            return self._library().get(self.url + path, cast_to=object, options=self._within(timeout_s))
        except Exception as error:
            raise self._meant(error) from None

    def _post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        try:
            told = dict(body or {})
            return self._library().post(self.url + path, body=told, cast_to=object, options=self._within())
        except Exception as error:
            raise self._meant(error) from None

    def _library(self) -> "OpenAI":
        return _library(self.key, self.url.startswith("https"))

    def _within(self, timeout_s: float | None = None) -> Any:
        return {"timeout": timeout_s or self._timeout_s}

    def _takes_adapters(self) -> bool:
        """Whether it may be told of adapters while it runs: then a nameless one is a bad request, else the route is missing."""
        try:
            self._post("/v1/load_lora_adapter", {"lora_name": "", "lora_path": ""})
        except ServerRefused as refusal:
            return "HTTP 404" not in str(refusal)
        return True

    def _meant(self, error: Exception, lost: int | None = None) -> EngineFailure:
        """What an exception of the library means; a status of `lost` means that the server is not what it was."""
        import openai

        if isinstance(error, openai.APIStatusError):
            said = without(self.key, _said(error))
            kind = ServerRefused if error.status_code < 500 and error.status_code != lost else ServerLost
            return kind(f"{self.url} answered HTTP {error.status_code}: {said}")
        if isinstance(error, TimeoutError | openai.APITimeoutError):
            return ServerLost(f"{self.url} does not answer in time")
        cause = error.__cause__ or error
        return ServerLost(f"{self.url} cannot be reached ({without(self.key, f'{type(cause).__name__}: {cause}')})")


@lru_cache(maxsize=64)
def _library(key: str, encrypted: bool) -> "OpenAI":
    from openai import OpenAI

    return OpenAI(api_key=key or "none", base_url="http://none", max_retries=0, http_client=_pool(encrypted))


@cache
def _pool(encrypted: bool) -> Any:
    """One pool of connections for all servers; without https it spares the loading of certificates."""
    from openai import DefaultHttpxClient

    return DefaultHttpxClient(verify=encrypted)


def _said(error: Any) -> str:
    body = error.body
    if isinstance(body, Mapping) and isinstance(body.get("message"), str):
        return body["message"]
    return error.response.text
