"""The engine that asks an OpenAI-compatible chat endpoint: text out, text in, for evaluation and deployment only."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from cod_lightning.clients.chat import ChatClient
from cod_lightning.engines.base import Completion, Engine, Request, digest
from cod_lightning.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

_SAMPLING_FIELDS = frozenset({"temperature", "top_p", "seed"})


class OpenAIEngine(Engine):
    """Sends each dialogue as chat messages; use it with `EndpointPolicy`. Log-probs are unknown (0), so it cannot train.

    Args:
        model: Name of the model at the endpoint.
        base_url: As in https://host/v1; null takes it from the environment variable OPENAI_BASE_URL.
        leave_out: Sampling fields that the endpoint does not take; its own defaults then hold, even against a suite's.
        settings: Those of `ChatClient`.
    """

    has_weights = False
    takes_media = True

    def __init__(
        self,
        model: str | None = None,
        base_url: str | None = None,
        leave_out: list[Literal["temperature", "top_p", "seed"]] | None = None,
        **settings: Any,
    ) -> None:
        self.client = ChatClient(model, base_url, where="data.engine", **settings)
        if taken := sorted(_SAMPLING_FIELDS & set(self.client.extra_body)):
            raise ConfigError("data.engine.extra_body", taken, "fields that are not set elsewhere", "Leave them out.")
        self.leave_out = frozenset(leave_out or ())
        self._spell: Callable[[str], Sequence[int]] | None = None
        """Turns text into the policy's tokens."""
        self._stop_id = 0

    def bind(self, model: "nn.Module", stop_ids: Iterable[int], window: int | None = None) -> None:
        """Check the settings; no request is sent yet."""
        self.client.check()
        self._spell, self._stop_id = cast(Any, model).spell, min(stop_ids)

    async def generate(self, request: Request) -> Completion:
        """Ask, with retries; ids are those of the text in the policy's own tokens, each with log-probability 0."""
        assert self._spell is not None, "bind() has not run"
        sampling = {"temperature": request.temperature, "top_p": 1.0, "seed": request.noise_seed % 2**31}
        # no `stop`, since endpoints leave the string at which they stop out of the text; the dialogue cuts behind it
        answer = await self.client.ask(
            request.messages,
            max_tokens=request.max_new_tokens,
            fields={key: value for key, value in sampling.items() if key not in self.leave_out},
            read=lambda answer: answer,
            ask_again=False,
        )
        text = self._spell(answer.text)
        cut_short = answer.note == "cut off" and text  # an answer without a word is the end token
        ids = tuple(text) if cut_short else (*text, self._stop_id)
        return Completion(
            action_ids=ids,
            behaviour_logprobs=(0.0,) * len(ids),
            stop=answer.stop,
            policy_version=self.policy_version,
            prompt_digest=digest(request.prompt_ids),
        )

    def report(self) -> str:
        return self.client.report()
