"""One vLLM server over HTTP: what it is, control calls, and a turn that it samples."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from cod_lightning.clients.answer import completion_of
from cod_lightning.clients.failure import TIMEOUT, UNREACHABLE, EndpointFailure
from cod_lightning.clients.http import Bounds, Connections, Method, ask, ask_once
from cod_lightning.engines.base import Completion, Request, digest
from cod_lightning.engines.vllm_start import STOPS, sampling_fields
from cod_lightning.errors import ConfigError, EngineFailure

REMEDY = (
    "Start it with VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model ... "
    "--logprobs-mode processed_logprobs --enable-scale-out --skip-tokenizer-init --generation-config vllm"
)
GENERATE = "/inference/v1/generate"
_PROBE = Request(dialogue="", prompt_ids=[0], messages=(), max_new_tokens=1, noise_seed=0)
_RESET_S = 10.0
"""Most time for blocks of aborted requests to be given up, before a prefix cache counts as stuck."""
_MOST_BYTES = 2**28
"""Of an answer; that of a turn with a million tokens has less."""
_NO_ANSWER = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""What reading JSON raises that is not of the form of an answer."""


class ServerLost(EngineFailure):
    """The server is gone, broken, or has other weights than it should; another may serve the turn."""


class ServerRefused(EngineFailure):
    """The server denies this one request (HTTP 4xx)."""


@dataclass(frozen=True, kw_only=True)
class ServerFacts:
    """What a server says of itself."""

    window: int
    dtype: str
    adapter_rank: int
    """Largest rank of an adapter that it has room for; 0 where it takes none while it runs."""


class ServerClient:
    """Control calls block; `turn` is a coroutine. No call outlasts its time-out, and the key is never shown.

    Args:
        control_timeout_s: Most time for a control call.
        max_concurrent: Most turns in flight in one event loop.
        timeout_s: Most time for one turn.
    """

    def __init__(
        self, url: str, key: str, control_timeout_s: float, *, max_concurrent: int = 256, timeout_s: float = 600.0
    ) -> None:
        self.url, self.key, self.timeout_s = url, key, timeout_s
        self._control_timeout_s = control_timeout_s
        self._turns = Connections(max_concurrent, 2 * timeout_s)

    def healthy(self) -> bool:
        """Whether it answers at all, and its engine lives."""
        try:
            self._ask("GET", "/health", timeout_s=10.0)
        except EngineFailure:
            return False
        return True

    def facts(self) -> ServerFacts:
        """Its settings. Raises `ConfigError` for those that would give wrong log-probs, `EngineFailure` if it cannot be asked."""
        try:
            settings = self.get("/server_info?config_format=json")["vllm_config"]
            config, room = settings["model_config"], settings.get("lora_config") or {}
            mode, window, dtype = config.get("logprobs_mode"), int(config["max_model_len"]), str(config["dtype"])
            most_rank = int(room["max_lora_rank"]) if room else 0
        except (ServerRefused, EndpointFailure, *_NO_ANSWER) as error:
            if "HTTP 401" in str(error):
                remedy = "Put its key into the environment variable that data.engine.api_key_variable names."
                raise ConfigError("data.engine.urls", self.url, "a server that accepts our key", remedy) from None
            expected = "a vLLM server of version 0.32 or newer in development mode (/server_info is missing)"
            raise ConfigError("data.engine.urls", self.url, expected, REMEDY) from None
        if mode != "processed_logprobs":
            expected = (
                f"a server with --logprobs-mode processed_logprobs (its own is {mode}), since the ratio needs them"
            )
            raise ConfigError("data.engine.urls", self.url, expected, REMEDY)
        self._rouse()
        try:
            self.post(GENERATE, turn_body(_PROBE, stop_ids=[]))
        except ServerRefused as refusal:
            expected = f"a server that takes token ids at {GENERATE}; it said: {refusal}"
            raise ConfigError("data.engine.urls", self.url, expected, REMEDY) from None
        return ServerFacts(
            window=window,
            dtype=dtype.removeprefix("torch."),
            adapter_rank=most_rank if most_rank and self._takes_adapters() else 0,
        )

    def _rouse(self) -> None:
        """Undo what a run that was killed has left: memory that was given back, turns that stand still for new weights."""
        for state, route in (("is_sleeping", "/wake_up"), ("is_paused", "/resume")):
            with suppress(ServerRefused):  # a server without sleep mode
                if self.get(f"/{state}").get(state):
                    self.post(route)

    def version(self) -> str:
        """Label of its weights; `default` after a start."""
        return str(self.get("/weight_info").get("weight_version"))

    def load(self, folder: str, label: str) -> None:
        """Take the weights of a folder that the server can read."""
        self.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}})
        self.settle(label)

    def load_adapter(self, folder: str, label: str, before: str) -> None:
        """Take the adapter of a folder that the server can read by this name; forget the one `before`.

        The name is taken where an earlier try failed after that.
        """
        for name in (before, label):
            with suppress(ServerRefused):  # it was started since, or has none of that name
                self.post("/v1/unload_lora_adapter", {"lora_name": name})
        self.post("/v1/load_lora_adapter", {"lora_name": label, "lora_path": folder})
        self.settle(label)

    def settle(self, label: str) -> None:
        """New weights are there: forget all cached prefixes, then go by the new label."""
        until = time.monotonic() + _RESET_S
        while not completion_of(self.post("/reset_prefix_cache")).get("success"):
            if time.monotonic() > until:
                raise EngineFailure(
                    f"{self.url} does not give up its prefix cache, which belongs to the weights before"
                )
            time.sleep(0.1)
        self.post("/update_weight_version", {"new_version": label})

    @contextmanager
    def turns_held(self) -> Iterator[None]:
        """Turns stand still within and go on by the weights that are there then, their prompts and tokens so far computed anew.

        Where the weights fail to come, turns are broken off, and the label is that of no sync.
        """
        self.post("/pause?mode=keep")
        try:
            yield
        except Exception:
            with suppress(EngineFailure):
                self.post("/pause?mode=abort")
                self.post("/update_weight_version", {"new_version": "failed"})
                self.post("/resume")
            raise
        self.post("/resume")

    def sleep(self, *, keep: bool) -> None:
        """Give weights and cache back until `wake`; `keep` has the weights wait in the memory of the server's host."""
        self.post(f"/sleep?level={1 if keep else 2}&mode=abort")

    def wake(self, part: str) -> None:
        """Make room for `weights` or the `kv_cache` again."""
        self.post(f"/wake_up?tags={part}")

    async def turn(self, body: Mapping[str, Any]) -> tuple[Completion, frozenset[str]]:
        """One sampled turn with the labels of its weights, begun once a place is free.

        Raises `TimeoutError` where it takes longer than `timeout_s`.
        """
        pool, url, content = await self._turns.pool(self.url), self.url + GENERATE, json.dumps(body).encode()
        bounds = Bounds(self.key, 2 * self.timeout_s, _MOST_BYTES)  # the turn's own deadline comes first
        async with pool.slots, asyncio.timeout(self.timeout_s):
            try:
                return answer_of(completion_of(await ask(pool.http, "POST", url, content, bounds)))
            except EndpointFailure as failure:
                raise self._meant(failure, lost="HTTP 404") from None  # an adapter that it no longer knows

    def get(self, path: str) -> Mapping[str, Any]:
        """A question to the server."""
        return completion_of(self._ask("GET", path))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        return self._ask("POST", path, json.dumps(body or {}).encode())

    def _ask(self, method: Method, path: str, content: bytes = b"", timeout_s: float | None = None) -> bytes:
        bounds = Bounds(self.key, timeout_s or self._control_timeout_s, _MOST_BYTES)
        try:
            return ask_once(method, self.url + path, content, bounds)
        except EndpointFailure as failure:
            raise self._meant(failure) from None

    def _takes_adapters(self) -> bool:
        """Whether it loads adapters while it runs: then a nameless one is a bad request, else the route is missing."""
        try:
            self.post("/v1/load_lora_adapter", {"lora_name": "", "lora_path": ""})
        except ServerRefused as refusal:
            return "HTTP 404" not in str(refusal)
        return True

    def _meant(self, failure: EndpointFailure, lost: str = "") -> EngineFailure:
        """What a failure means; one of the kind `lost` means that the server is not what it was."""
        if failure.kind.startswith("HTTP"):
            refused = failure.kind != lost and not failure.kind.startswith("HTTP 5")
            kind = ServerRefused if refused else ServerLost
            return kind(f"{self.url} answered {failure.kind}: {failure.detail}")
        if failure.kind == TIMEOUT:
            return ServerLost(f"{self.url} does not answer in time")
        detail = failure.detail if failure.kind == UNREACHABLE else str(failure)
        return ServerLost(f"{self.url} cannot be reached ({detail})")


def turn_body(request: Request, stop_ids: Sequence[int], adapter: str = "") -> dict[str, Any]:
    """A request for token ids and their log-probs.

    `adapter` is the name under which the server got one; empty asks the model that it was started with.
    """
    return {
        **({"model": adapter} if adapter else {}),
        "token_ids": list(request.prompt_ids),
        "return_token_ids": True,
        "sampling_params": sampling_fields(request, stop_ids),
    }


def answer_of(content: Any) -> tuple[Completion, frozenset[str]]:
    """A sampled turn, without its policy version, and the labels of the weights that its tokens were sampled by.

    Strictly read. Raises `EngineFailure` for what is no answer, `ServerLost` for a turn that the server broke off."""
    try:
        (choice,) = content["choices"]
        ids = tuple(int(i) for i in choice["token_ids"])
        tokens = choice["logprobs"]["content"] or ()
        logprobs = tuple(float(at["logprob"]) for at in tokens)
        spelled = tuple(int(at["token_id"]) for at in tokens)
        reason, spans = choice["finish_reason"], choice["weight_versions"] or ()
        prompt_digest = digest(content["prompt_token_ids"])
        versions = frozenset(str(span["version"]) for span in spans)
    except _NO_ANSWER as error:
        raise EngineFailure(f"a vLLM server's answer lacks {type(error).__name__}: {error}") from None
    if ids != spelled:
        raise EngineFailure("a vLLM server's log-probs are not those of its tokens")
    if reason not in STOPS:
        raise ServerLost(f"a vLLM server ended the request with {reason!r}")
    if ids and not versions:  # vLLM says null where it does not know
        raise EngineFailure("a vLLM server does not say which weights sampled its tokens")
    turn = Completion(
        action_ids=ids,
        behaviour_logprobs=logprobs,
        stop=STOPS[reason],
        policy_version=-1,
        prompt_digest=prompt_digest,
    )
    return turn, versions
