"""One vLLM server over HTTP: what it is, what it is told, and a turn that it samples.

Connections, time-outs and retries with growing pauses are the `openai` library's.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cod_lightning.engines.base import digest
from cod_lightning.engines.endpoint_failure import without
from cod_lightning.errors import ConfigError, EngineFailure
from cod_lightning.types import StopReason

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

FLAGS = "--logprobs-mode processed_logprobs --enable-scale-out --skip-tokenizer-init --generation-config vllm"
"""What a server has to be started with, beside its model."""
REMEDY = f"Start it with VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model ... {FLAGS}"
GENERATE = "/inference/v1/generate"
_STOPS = {"stop": StopReason.STOP, "length": StopReason.LENGTH}
_RESET_S = 10.0
"""Most time for blocks of aborted requests to be given up, before a prefix cache counts as stuck."""


class ServerLost(EngineFailure):
    """The server is gone, broken, or has other weights than it should; another may serve the turn."""


@dataclass(frozen=True, kw_only=True)
class ServerFacts:
    """What a server says of itself."""

    window: int
    dtype: str


@dataclass(frozen=True, kw_only=True)
class ServerAnswer:
    """A sampled turn."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop: StopReason
    versions: frozenset[str]
    """Labels of the weights that its tokens were sampled by."""
    prompt_digest: int


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
            config = self._get("/server_info?config_format=json")["vllm_config"]["model_config"]
        except (ServerRefused, KeyError, TypeError):
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
        return ServerFacts(window=int(config["max_model_len"]), dtype=str(config["dtype"]).removeprefix("torch."))

    def version(self) -> str:
        """Label of its weights; `default` after a start."""
        return str(self._get("/weight_info").get("weight_version"))

    def load(self, folder: str, label: str) -> None:
        """Take the weights of a folder that the server can read."""
        self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}})
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

    def sleep(self) -> None:
        """Give weights and cache back until `wake`."""
        self._post("/sleep?level=2&mode=abort")

    def wake(self, part: str) -> None:
        """Make room for `weights` or the `kv_cache` again."""
        self._post(f"/wake_up?tags={part}")

    async def turn(self, client: "AsyncOpenAI", body: Mapping[str, Any]) -> ServerAnswer:
        """One sampled turn."""
        try:
            return _answer_of(await client.post(self.url + GENERATE, body=dict(body), cast_to=object))
        except EngineFailure:
            raise
        except Exception as error:
            raise self._meant(error) from None

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

    def _meant(self, error: Exception) -> EngineFailure:
        """What an exception of the library means."""
        import openai

        if isinstance(error, openai.APIStatusError):
            said = without(self.key, _said(error))
            kind = ServerRefused if error.status_code < 500 else ServerLost
            return kind(f"{self.url} answered HTTP {error.status_code}: {said}")
        if isinstance(error, TimeoutError | openai.APITimeoutError):
            return ServerLost(f"{self.url} does not answer in time")
        cause = error.__cause__ or error
        return ServerLost(f"{self.url} cannot be reached ({without(self.key, f'{type(cause).__name__}: {cause}')})")


@lru_cache(maxsize=4)
def _library(key: str, encrypted: bool) -> "OpenAI":
    """One pool of connections for all servers; without https it spares the loading of certificates."""
    from openai import DefaultHttpxClient, OpenAI

    http = DefaultHttpxClient(verify=encrypted)
    return OpenAI(api_key=key or "none", base_url="http://none", max_retries=0, http_client=http)


class ServerRefused(EngineFailure):
    """The server denies this one request (HTTP 4xx)."""


def turn_body(
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    seed: int,
    temperature: float,
    top_p: float,
    stop_ids: Sequence[int],
) -> dict[str, Any]:
    """A request for token ids and their log-probs; it ends at `stop_ids`, whatever the checkpoint's own settings say."""
    return {
        "token_ids": list(prompt_ids),
        "return_token_ids": True,
        "sampling_params": {
            "temperature": temperature,
            "top_p": top_p,
            "max_tokens": max_new_tokens,
            "seed": seed & (2**63 - 1),
            "stop_token_ids": list(stop_ids),
            "ignore_eos": True,
            "logprobs": 0,
            "detokenize": False,
        },
    }


def _answer_of(content: Any) -> ServerAnswer:
    try:
        (choice,) = content["choices"]
        ids = tuple(int(i) for i in choice["token_ids"])
        tokens = choice["logprobs"]["content"] or ()
        logprobs = tuple(float(at["logprob"]) for at in tokens)
        spelled = tuple(int(at["token_id"]) for at in tokens)
        reason, spans = choice["finish_reason"], choice["weight_versions"] or ()
        prompt_digest = digest(content["prompt_token_ids"])
        versions = frozenset(str(span["version"]) for span in spans)
    except (KeyError, TypeError, ValueError) as error:
        raise EngineFailure(f"a vLLM server's answer lacks {type(error).__name__}: {error}") from None
    if ids != spelled:
        raise EngineFailure("a vLLM server's log-probs are not those of its tokens")
    if reason not in _STOPS:
        raise ServerLost(f"a vLLM server ended the request with {reason!r}")
    return ServerAnswer(ids=ids, logprobs=logprobs, stop=_STOPS[reason], versions=versions, prompt_digest=prompt_digest)


def _said(error: Any) -> str:
    body = error.body
    if isinstance(body, Mapping) and isinstance(body.get("message"), str):
        return body["message"]
    return error.response.text
