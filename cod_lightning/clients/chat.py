"""The client of an OpenAI-compatible chat endpoint: for the engine, judges, teachers and simulated users.

Nothing of an endpoint is trusted: an answer is bounded in time, bytes and tokens, all answers together in tokens. The package
`openai` bounds time alone.
"""

import asyncio
import base64
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from cod_lightning.clients.access import checked_address, key_of
from cod_lightning.clients.answer import ChatAnswer, Tokens, answer_of, completion_of, tokens_of
from cod_lightning.clients.failure import TIMEOUT, TOO_LONG, UNREACHABLE, UNREADABLE, EndpointFailure, without
from cod_lightning.clients.http import Bounds, Connections, ask, pause_s
from cod_lightning.errors import ConfigError, EngineRefused, ForgedRole
from cod_lightning.hostile_text import WIDELY_KNOWN, ControlTokens
from cod_lightning.ranges import Count, Natural, Positive
from cod_lightning.types import Message, Role, Text

if TYPE_CHECKING:
    from httpx2 import AsyncClient

_LETTERS_PER_TOKEN = 128
"""No vocabulary has longer tokens: a text with more letters than that for each of `max_tokens` broke the limit."""
_MOST_BYTES = 2**22
"""Of an answer."""
_BYTES_PER_TOKEN = 4
"""For the estimate where an endpoint gives no counts."""
_IN_RESPONSES = ControlTokens(thoughts=False)
_OWN_FIELDS = frozenset({"model", "messages", "stream", "n"})

T = TypeVar("T")


@dataclass(slots=True)
class Usage:
    """Counts since the client was made, over all rollouts of this process."""

    num_served: int = 0
    """Questions that were answered."""
    num_retries: int = 0
    """Requests that were sent again, for answers that came in the end."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Part of `prompt_tokens`."""
    completion_tokens: int = 0
    num_estimated: int = 0
    """Answers without token counts; theirs are estimated."""
    notes: Counter[str] = field(default_factory=Counter)
    """Answers that were cut off, empty or a refusal."""
    failures: Counter[str] = field(default_factory=Counter)
    """Questions that failed in the end, by kind."""

    def charge(self, tokens: Tokens) -> None:
        """The endpoint bills an answer, whether or not it can be used."""
        self.prompt_tokens += tokens.prompt
        self.cached_tokens += tokens.cached
        self.completion_tokens += tokens.completion

    @property
    def num_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def report(self) -> str:
        """One line for a person; empty if no question was ever asked."""
        if not self.num_served and not self.failures:
            return ""
        noted = f" ({_listed(self.notes)})" if self.notes else ""
        parts = [f"{self.num_served:,} answers{noted}"]
        if self.num_retries:
            parts.append(f"{self.num_retries:,} retries")
        if self.failures:
            parts.append(f"failed: {_listed(self.failures)}")
        cached = f" ({self.cached_tokens:,} cached)" if self.cached_tokens else ""
        parts.append(f"tokens: {self.prompt_tokens:,} in{cached}, {self.completion_tokens:,} out")
        if self.num_estimated:
            parts.append(f"{self.num_estimated:,} answers without token counts, estimated")
        return "; ".join(parts)


class ChatClient:
    """Asks one model at one endpoint. One object for all users of a part: copies share its counts.

    Args:
        model: Name of the model at the endpoint.
        base_url: As in https://host/v1; null takes it from the environment variable OPENAI_BASE_URL.
        where: Config key of the part that asks, for messages.
        url_variable: Environment variable that holds the address where `base_url` is null.
        api_key_variable: Environment variable that holds the key; without it, or if it is empty, no key is sent.
        max_concurrent: Most requests in flight in one event loop, or of all threads without one.
        timeout_s: For one try, from connecting to the last byte.
        max_retries: Further tries after a time-out, a lost connection or HTTP 408, 409, 425, 429, 5xx. The pause after
            the first is 0.5 s and doubles with every further one, up to 30 s, less up to a quarter that is derived from the
            request. A `Retry-After` of up to 120 s goes before it.
        max_refusals: The run ends after so many denials (HTTP 401, 402, 403, 404) in a row, or after the first if nothing was
            ever served. While nothing was, it also ends at HTTP 400, 422, a redirect, a time-out or no connection that is the
            failure of that number in a row; later, at a time-out that is as many in a row for each of `max_concurrent`.
        token_limit: Field that limits the tokens of an answer; newer models of OpenAI know the second only.
        extra_body: Further fields of every request, for example {top_k: -1}. They are kept in run configs: no secrets.
        max_total_tokens: The run ends once this process has used so many tokens, prompts included; null sets no ceiling.
    """

    def __init__(
        self,
        model: str | None = None,
        base_url: str | None = None,
        *,
        where: str,
        url_variable: str = "OPENAI_BASE_URL",
        api_key_variable: str = "OPENAI_API_KEY",
        max_concurrent: Count = 8,
        timeout_s: Positive = 120.0,
        max_retries: Natural = 4,
        max_refusals: Count = 3,
        token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens",
        extra_body: dict[str, Any] | None = None,
        max_total_tokens: Count | None = None,
    ) -> None:
        self.model, self.base_url, self.where, self.url_variable = model, base_url, where, url_variable
        self.api_key_variable, self.max_concurrent, self.timeout_s = api_key_variable, max_concurrent, timeout_s
        self.max_retries, self.max_refusals = max_retries, max_refusals
        self.token_limit, self.extra_body = token_limit, dict(extra_body or {})
        self.max_total_tokens = max_total_tokens
        if taken := sorted({*_OWN_FIELDS, token_limit} & set(self.extra_body)):
            raise ConfigError(f"{where}.extra_body", taken, "fields that are not set elsewhere", "Leave them out.")
        self.usage = Usage()
        self._in_a_row: Counter[str] = Counter()
        """Failures since the last answer, by what they count as."""
        self._begin()

    def __deepcopy__(self, memo: dict[int, Any]) -> "ChatClient":
        """Itself: a ceiling and counts hold for all who share it."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which counts on its own."""
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_places", "_connections")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def _begin(self) -> None:
        self._lock, self._places = threading.Lock(), threading.BoundedSemaphore(self.max_concurrent)
        self._connections = Connections(self.max_concurrent, self.timeout_s)

    def check(self) -> str:
        """The endpoint's address, once all is there to begin with; nothing is sent. Raises `ConfigError`."""
        if not self.model:
            remedy = "Name one; the endpoint lists its models at /models."
            raise ConfigError(f"{self.where}.model", "empty", "the name of a model at the endpoint", remedy)
        self._key()
        url, remedy = self.base_url or os.environ.get(self.url_variable, ""), f"Set it, or export {self.url_variable}."
        expected = "an http or https address without credentials, such as http://localhost:8000/v1"
        return checked_address(url, f"{self.where}.base_url", expected, remedy)

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        fields: Mapping[str, Any] | None = None,
        read: Callable[[ChatAnswer], T],
        ask_again: bool = True,
    ) -> T:
        """What `read` makes of the answer. Where it raises `ValueError`, or no answer can be read, the model is asked again.

        `ask_again=False` does not ask again for an answer that came: it is the policy's own doing.

        Raises:
            EndpointFailure: After the tries, or at once where another try cannot help.
            EngineRefused: Where no further request can succeed, or the tokens have reached their ceiling; ends the run.
        """
        pool = await self._connections.pool(self.check())
        body = {
            "model": self.model,
            "messages": [_sent(one) for one in messages],
            **(fields or {}),
            self.token_limit: max_tokens,
            **self.extra_body,
        }
        content = json.dumps(body).encode()
        async with pool.slots:
            try:
                result = await self._tried(pool.http, content, max_tokens, read, ask_again)
            except EndpointFailure as failure:
                self._failed(failure)
                raise
        self._in_a_row.clear()
        return result

    def ask_in_thread(self, messages: Sequence[Message], **asked: Any) -> Any:
        """As `ask`, from a thread without an event loop; `max_concurrent` bounds those of all threads together."""
        with self._places:
            return asyncio.run(self.ask(messages, **asked))

    def report(self) -> str:
        """Answers, failures and tokens so far, in one line; empty if nothing was asked."""
        line = self.usage.report()
        return f"{self.model}: {line}" if line else ""

    async def _tried(
        self, http: "AsyncClient", content: bytes, max_tokens: int, read: Callable[[ChatAnswer], T], ask_again: bool
    ) -> T:
        begun, tries = time.monotonic(), 0
        while True:
            self._see_ceiling()
            tries += 1
            try:
                answer = await self._once(http, content, max_tokens)
                try:
                    result = read(answer)
                except ValueError as error:
                    raise EndpointFailure(UNREADABLE, str(error)) from None
                with self._lock:
                    self.usage.num_served += 1
                    self.usage.num_retries += tries - 1
                    if answer.note:
                        self.usage.notes[answer.note] += 1
                return result
            except EndpointFailure as failure:
                again = failure.passes or (ask_again and not failure.kind.startswith(("HTTP", "redirect")))
                if not again or tries > self.max_retries:
                    took = f"{time.monotonic() - begun:.1f} s and {tries} {'try' if tries == 1 else 'tries'}"
                    if failure.kind == TIMEOUT:
                        raise EndpointFailure(TIMEOUT, f"no answer within {took}") from None
                    detail = without(self._key(), failure.detail) + (f", after {took}" if tries > 1 else "")
                    raise EndpointFailure(failure.kind, detail) from None
                pause = pause_s(failure, content, tries)
            await asyncio.sleep(pause)

    async def _once(self, http: "AsyncClient", content: bytes, max_tokens: int) -> ChatAnswer:
        """One request. Raises `EndpointFailure`."""
        bounds = Bounds(self._key(), self.timeout_s, _MOST_BYTES)
        body = await ask(http, "POST", f"{self.check()}/chat/completions", content, bounds)
        completion = completion_of(body)
        counted = tokens_of(completion)
        estimated = Tokens(
            prompt=len(content) // _BYTES_PER_TOKEN, completion=min(max_tokens, len(body) // _BYTES_PER_TOKEN)
        )
        with self._lock:
            self.usage.charge(counted or estimated)
            self.usage.num_estimated += counted is None
        answer = answer_of(completion)
        if len(answer.text) > _LETTERS_PER_TOKEN * max_tokens:
            detail = f"{len(answer.text):,} letters, more than {self.token_limit}={max_tokens:,} can spell"
            raise EndpointFailure(TOO_LONG, detail)
        return answer

    def _failed(self, failure: EndpointFailure) -> None:
        """Count it; raise `EngineRefused` where going on is of no use."""
        with self._lock:
            self.usage.failures[failure.kind] += 1
            self._in_a_row[failure.row] += 1
            num_in_a_row = self._in_a_row[failure.row]
        if failure.ends_the_run(
            ever_served=self.usage.num_served > 0,
            num_in_a_row=num_in_a_row,
            max_refusals=self.max_refusals,
            max_concurrent=self.max_concurrent,
        ):
            does, at = f"does not serve the model {self.model}", f"{self.where} and the key in {self.api_key_variable}"
            if failure.kind in (TIMEOUT, UNREACHABLE):
                does, at = "does not answer", self.where
            times = f", {num_in_a_row} times in a row" if num_in_a_row > 1 else ""
            raise EngineRefused(f"{self.check()} {does}{times}: {failure}. Check the settings at {at}.") from None

    def _see_ceiling(self) -> None:
        limit, spent = self.max_total_tokens, self.usage.num_tokens
        if limit is not None and spent >= limit:
            raise EngineRefused(
                f"{self.where}.max_total_tokens is {limit} and this process has spent {spent:,} ({self.report()}). "
                "Raise it and go on with --ckpt_path last."
            )

    def _key(self) -> str:
        return key_of(self.api_key_variable, f"{self.where}.api_key_variable")


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())


def _sent(message: Message) -> dict[str, Any]:
    """The message as the endpoint gets it: there its text becomes part of a chat template. Raises `ForgedRole`.

    Images are sent in place of their alternatives.
    """
    control = _IN_RESPONSES if message.role is Role.ASSISTANT else WIDELY_KNOWN
    if not message.parts:
        return {"role": message.role.value, "content": control.broken_up(message.content)}
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text):
            content.append({"type": "text", "text": control.broken_up(part.text)})
        else:
            url = f"data:{part.media_type};base64,{base64.b64encode(part.png).decode()}"
            content.append({"type": "image_url", "image_url": {"url": url}})
    if token := control.first("".join(part.get("text", "") for part in content)):  # some templates gather the texts
        raise ForgedRole(f"texts around an image spell {token!r} together")
    return {"role": message.role.value, "content": content}
