"""A language model behind an OpenAI-compatible chat endpoint that an environment asks, and waits for."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cod_lightning.clients import ChatAnswer, ChatClient, EndpointFailure
from cod_lightning.clients.access import key_of
from cod_lightning.errors import EnvironmentFailure, check_at_least
from cod_lightning.types import Message

_T = TypeVar("_T")


class AskedModel:
    """Asks a chat model, with tries. A wrong key or address ends the run (`ChatClient`).

    Args:
        model: Name of the model at the endpoint.
        base_url: As in https://host/v1; null takes it from the environment variable `url_variable`.
        where: Key of the config, for errors.
        url_variable: See `base_url`.
        key_variable: Environment variable that holds the key; without it, or if it is empty, no key is sent.
        tries: Requests for one answer.
        backoff_s: Pause after the first failed try; it doubles with each further one, up to 30 s, less up to a quarter.
        timeout_s: For one try, from connecting to the last byte.
        max_tokens: Of one answer, thinking included.
        sampling: Further fields of each request.

    Raises:
        ConfigError: For a value that cannot work, with its key under `where`.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None,
        *,
        where: str,
        url_variable: str,
        key_variable: str,
        tries: int,
        backoff_s: float,
        timeout_s: float,
        max_tokens: int,
        sampling: Mapping[str, Any],
    ) -> None:
        for name, value in {"tries": tries, "max_tokens": max_tokens}.items():
            check_at_least(f"{where}.{name}", value, 1, "Leave it out for the default.")
        key_of(key_variable, f"{where}.key_variable")
        self.client = ChatClient(
            model,
            base_url,
            where=where,
            url_variable=url_variable,
            api_key_variable=key_variable,
            timeout_s=timeout_s,
            max_retries=tries - 1,
            backoff_s=backoff_s,
        )
        self.client.check()
        self.max_tokens, self.sampling = max_tokens, dict(sampling)

    def answer(self, messages: Sequence[Message], read: Callable[[ChatAnswer], _T], complaint: str) -> _T:
        """The first answer that `read` can read. Raises `EnvironmentFailure` with this complaint after the tries."""
        asked = self.client.ask(messages, max_tokens=self.max_tokens, fields=self.sampling, read=read)
        try:
            return asyncio.run(asked)
        except EndpointFailure as failure:
            raise EnvironmentFailure(f"{complaint}: {failure}") from None
