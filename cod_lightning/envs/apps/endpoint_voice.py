"""A person whose answers a language model words, behind an OpenAI-compatible chat endpoint."""

import asyncio
from collections.abc import Mapping
from typing import Any

from cod_lightning.clients import ChatAnswer, ChatClient, EndpointFailure
from cod_lightning.clients.grading import QUOTED, graded_object, grading_messages, one_line
from cod_lightning.envs.apps.user import Voice
from cod_lightning.errors import EnvironmentFailure
from cod_lightning.ranges import Count

_INSTRUCTION = (
    "You play a busy person for whom an assistant works. You get a JSON object with three keys: goal (what you asked the "
    f"assistant to do), known (what you know, in sentences), question (what the assistant asks you). {QUOTED}\n"
    "Answer just what is asked, in one short sentence. Say nothing that known does not state, and never more than one of its "
    "sentences. Where it states nothing about the question, say that you cannot say more about that.\n"
    'Answer with nothing but a JSON object: {"answer": "..."}'
)


class EndpointVoice(Voice):
    """Asks a chat model, with tries; without a readable answer the episode fails and its reward is missing.

    The model is shown all that the person knows and may say it wrong, so that a task can become unsolvable. A wrong key or address
    ends the run (`ChatClient`).

    Args:
        model: Name of the model at the endpoint.
        base_url: As in https://host/v1; null takes it from the environment variable APPS_USER_URL.
        api_key_variable: Environment variable that holds the key; without it, or if it is empty, no key is sent.
        temperature: Of sampling.
        max_tokens: Of one answer, thinking included.
        settings: Those of `ChatClient`.
    """

    blocking = True

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key_variable: str = "APPS_USER_KEY",
        temperature: float = 0.7,
        max_tokens: Count = 1_000,
        **settings: Any,
    ) -> None:
        self.client = ChatClient(
            model,
            base_url,
            where="data.env.voice",
            url_variable="APPS_USER_URL",
            api_key_variable=api_key_variable,
            **settings,
        )
        self.client.check()
        self.max_tokens, self.temperature = max_tokens, temperature

    def answer(self, question: str, goal: str, known: Mapping[str, str]) -> str:
        """The first readable answer. Raises `EnvironmentFailure` after the tries."""
        material = {"goal": goal, "known": list(known.values()), "question": question}
        messages, fields = grading_messages(_INSTRUCTION, material), {"temperature": self.temperature}
        try:
            return asyncio.run(self.client.ask(messages, max_tokens=self.max_tokens, fields=fields, read=_read))
        except EndpointFailure as failure:
            raise EnvironmentFailure(f"the person {self.client.model} gave no answer: {failure}") from None


def _read(answer: ChatAnswer) -> str:
    """The answer in one line. Raises `ValueError` for whatever else it is."""
    return one_line(graded_object(answer.text, frozenset({"answer"}))["answer"])
