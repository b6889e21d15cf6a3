"""The engine that asks an OpenAI-compatible chat endpoint: text out, text in, for evaluation and deployment only.

Connections, time-outs and retries with growing pauses are the `openai` library's. A rollout is one `asyncio.run`; the client
lives as long as that loop, in an asynchronous generator, which the loop closes when it ends.
"""

import asyncio
import importlib.util
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from cod_lightning.engines.base import Completion, Engine, Request, digest
from cod_lightning.engines.chat_answer import ChatAnswer, answer_of
from cod_lightning.engines.endpoint_access import key_of, url_of
from cod_lightning.engines.endpoint_failure import EndpointFailure, failure_of
from cod_lightning.engines.usage import Prices, Usage
from cod_lightning.errors import ConfigError, EngineRefused

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from torch import nn

_NO_KEY = "none"
"""The library sends one in any case; servers that need none ignore it."""
_LONGEST_PAUSE_S = 120.0
"""The library waits as long as the endpoint asks it to, up to this."""
_OWN_FIELDS = frozenset({"model", "messages", "temperature", "top_p", "seed", "stream", "n"})


@runtime_checkable
class Speller(Protocol):
    """A model that is somewhere else: here it only turns text into the policy's tokens."""

    def spell(self, text: str) -> Sequence[int]:
        """Token ids of the text."""
        ...


class OpenAIEngine(Engine):
    """Sends each dialogue as chat messages; use it with `EndpointPolicy`. Log-probs are unknown (0), so it cannot train.

    Args:
        model: Name of the model at the endpoint.
        base_url: As in https://host/v1; null takes it from the environment variable OPENAI_BASE_URL.
        api_key_variable: Environment variable that holds the key; without it, or if it is empty, the word none is sent.
        max_concurrent: Most requests in flight.
        timeout_s: For one try: to connect, and for each wait on the connection. All tries of a turn end in bounded time, too.
        max_retries: Further tries after a time-out, a lost connection or HTTP 408, 409, 429, 5xx; pauses grow from 0.5 to 8 s.
        max_refusals: The run ends after so many denials (HTTP 401, 402, 403, 404) in a row, or after the first if nothing was
            ever served; while nothing was, also after so many of HTTP 400, 422 or no connection.
        token_limit: Field that tells `data.max_new_tokens`; newer models of OpenAI know the second only.
        leave_out: Fields that the endpoint does not take; its own defaults then hold, whatever a suite says.
        extra_body: Further fields of every request, for example {top_k: -1}. They are kept in run configs: no secrets.
        input_price: Price of a million prompt tokens; null: no cost is told.
        output_price: Price of a million completion tokens; null: no cost is told.
        cached_price: Price of a million prompt tokens from the endpoint's cache; null: as the others.
    """

    has_weights = False

    def __init__(
        self,
        model: str | None = None,
        base_url: str | None = None,
        api_key_variable: str = "OPENAI_API_KEY",
        max_concurrent: int = 8,
        timeout_s: float = 120.0,
        max_retries: int = 4,
        max_refusals: int = 3,
        token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens",
        leave_out: list[Literal["temperature", "top_p", "seed"]] | None = None,
        extra_body: dict[str, Any] | None = None,
        input_price: float | None = None,
        output_price: float | None = None,
        cached_price: float | None = None,
    ) -> None:
        _check_numbers(max_concurrent, timeout_s, max_retries, max_refusals)
        if taken := sorted({*_OWN_FIELDS, token_limit} & set(extra_body or ())):
            raise ConfigError("data.engine.extra_body", taken, "fields that are not set elsewhere", "Leave them out.")
        self.name, self.base_url, self.api_key_variable = model, base_url, api_key_variable
        self.max_concurrent, self.timeout_s, self.max_retries = max_concurrent, timeout_s, max_retries
        self.max_refusals, self.token_limit = max_refusals, token_limit
        self.leave_out, self.extra_body = frozenset(leave_out or ()), dict(extra_body or {})
        self.prices = Prices(prompt=input_price, completion=output_price, cached=cached_price)
        self.usage = Usage()
        self._refused, self._num_in_a_row = "", 0
        self._speller: Speller | None = None
        self._stop_id = 0
        self._url = ""
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self, model: "nn.Module", stop_ids: Iterable[int], window: int | None = None) -> None:
        """See that all is there to begin with; nothing is sent yet."""
        if importlib.util.find_spec("openai") is None:
            raise ConfigError(
                "data.engine", "OpenAIEngine", "the library openai", "pip install 'cod-lightning[openai]'."
            )
        if not isinstance(model, Speller):
            found = type(model).__name__
            raise ConfigError("model.policy", found, "a policy without weights", "Choose model=endpoint.")
        if not self.name:
            remedy = "Add --data.engine.init_args.model NAME; the endpoint lists its models at /models."
            raise ConfigError("data.engine.model", "empty", "the name of a model at the endpoint", remedy)
        self._url = url_of(self.base_url)
        key_of(self.api_key_variable)
        self._speller, self._stop_id = model, min(stop_ids)

    async def generate(self, request: Request) -> Completion:
        """Ask, with retries; ids are those of the text in the policy's own tokens, each with log-probability 0."""
        assert self._speller is not None, "bind() has not run"
        client, slots = await self._line()
        async with slots:
            try:
                answer = await self._ask(client, request)
            except EndpointFailure as failure:
                self._count(failure)
                raise
        self._refused, self._num_in_a_row = "", 0
        text = self._speller.spell(answer.text)
        cut_short = answer.note == "cut off" and text  # an answer of no words at all is the end token
        ids = tuple(text) if cut_short else (*text, self._stop_id)
        return Completion(
            action_ids=ids,
            behaviour_logprobs=(0.0,) * len(ids),
            stop=answer.stop,
            policy_version=self.policy_version,
            prompt_digest=digest(request.prompt_ids),
        )

    def report(self) -> str:
        """Answers, failures, tokens and cost so far."""
        told = self.usage.report(self.prices)
        return f"{self.name}: {told}" if told else ""

    async def _ask(self, client: "AsyncOpenAI", request: Request) -> ChatAnswer:
        try:
            async with asyncio.timeout(self._deadline_s):
                raw = await client.chat.completions.with_raw_response.create(
                    model=str(self.name),
                    messages=[{"role": m.role.value, "content": m.content} for m in request.messages],  # pyright: ignore
                    extra_body=self._fields(request),
                )
        except Exception as error:
            raise failure_of(error, key_of(self.api_key_variable), self.timeout_s) from None
        answer = answer_of(raw.http_response.content)
        self.usage.served(answer, raw.retries_taken)
        return answer

    def _fields(self, request: Request) -> dict[str, Any]:
        sampling = {"temperature": request.temperature, "top_p": request.top_p, "seed": request.noise_seed % 2**31}
        told = {key: value for key, value in sampling.items() if key not in self.leave_out}
        return {**told, self.token_limit: request.max_new_tokens, **self.extra_body}

    @property
    def _deadline_s(self) -> float:
        """Bounds a turn even where an endpoint sends a byte now and then."""
        return self.timeout_s + self.max_retries * (self.timeout_s + _LONGEST_PAUSE_S)

    async def _line(self) -> "tuple[AsyncOpenAI, asyncio.Semaphore]":
        """The client and the free places of the running loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._life = self._client()
            self._current = await anext(self._life)
            self._loop = loop
        return self._current

    async def _client(self) -> "AsyncGenerator[tuple[AsyncOpenAI, asyncio.Semaphore]]":
        """Open until the loop ends: `asyncio.run` closes the generators that it has seen."""
        from openai import AsyncOpenAI

        key = key_of(self.api_key_variable) or _NO_KEY
        async with AsyncOpenAI(
            api_key=key, base_url=self._url, timeout=self.timeout_s, max_retries=self.max_retries
        ) as client:
            yield client, asyncio.Semaphore(self.max_concurrent)

    def _count(self, failure: EndpointFailure) -> None:
        """One more failure; raises `EngineRefused` where going on is of no use."""
        self.usage.failures[failure.kind] += 1
        self._num_in_a_row = self._num_in_a_row + 1 if failure.kind == self._refused else 1
        self._refused = failure.kind
        if failure.ends_the_run(
            ever_served=self.usage.num_served > 0, num_in_a_row=self._num_in_a_row, max_refusals=self.max_refusals
        ):
            times = f", {self._num_in_a_row} times in a row" if self._num_in_a_row > 1 else ""
            raise EngineRefused(
                f"{self._url} does not serve the model {self.name}{times}: {failure}. "
                f"Check data.engine (model, base_url, leave_out, token_limit) and the key in {self.api_key_variable}."
            ) from None


def _check_numbers(max_concurrent: int, timeout_s: float, max_retries: int, max_refusals: int) -> None:
    for key, value, least in (
        ("max_concurrent", max_concurrent, 1),
        ("max_retries", max_retries, 0),
        ("max_refusals", max_refusals, 1),
    ):
        if value < least:
            raise ConfigError(f"data.engine.{key}", value, f"at least {least}", "Leave it out for the default.")
    if not 0 < timeout_s < float("inf"):
        raise ConfigError("data.engine.timeout_s", timeout_s, "above 0 and finite", "120 is the default.")
