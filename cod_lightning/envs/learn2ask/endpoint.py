"""A language model behind an OpenAI-compatible chat endpoint as judge."""

from collections.abc import Sequence
from typing import Any

from cod_lightning.clients.answer import ChatAnswer
from cod_lightning.clients.chat import ChatClient
from cod_lightning.clients.failure import EndpointFailure
from cod_lightning.clients.grading import QUOTED, graded_object, grading_messages, one_line
from cod_lightning.envs.learn2ask.judge import Dialogue, Judge, JudgeVerdict
from cod_lightning.errors import EnvironmentFailure
from cod_lightning.ranges import Count, Natural
from cod_lightning.types import Message

_GRADES = (0, 0.5, 1)
_SAMPLING = {"temperature": 1.0, "top_p": 0.95}
"""The reference's."""
_INSTRUCTION = (
    "You grade one question that a pharmacy assistant wants to ask a patient. You get a JSON object with three keys: dialogue, "
    f"missing_items, question. {QUOTED}\n"
    "format: 1 if the text asks one question, 0.5 if two, 0 if none or three and more.\n"
    "content: 1 if the text asks directly for one of the missing items, 0.5 if it is highly relevant to one of them, 0 if not, or "
    "if the dialogue has answered it already.\n"
    "note: one line of advice to the assistant that does not tell any missing item.\n"
    'Answer with nothing but a JSON object: {"format": ..., "content": ..., "note": "..."}'
)


class EndpointJudge(Judge):
    """Asks a chat model for a JSON verdict, with tries; without a readable one the episode fails and its reward is missing.

    Sampling is the reference's; verdicts are therefore not deterministic. `score` blocks its caller while it waits. A wrong key or
    address ends the run (`ChatClient`).

    Args:
        model: Name of the model at the endpoint.
        base_url: As in https://host/v1; null takes it from the environment variable LEARN2ASK_JUDGE_URL.
        api_key_variable: Environment variable that holds the key; without it, or if it is empty, no key is sent.
        max_retries: Further tries for one verdict, 5 in the reference.
        top_k: 20 in the reference; null leaves it out, as the official OpenAI service requires.
        max_tokens: Of one answer, thinking included.
        settings: Those of `ChatClient`.
    """

    blocking = True

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key_variable: str = "LEARN2ASK_JUDGE_KEY",
        max_retries: Natural = 5,
        top_k: int | None = None,
        max_tokens: Count = 2000,
        **settings: Any,
    ) -> None:
        self.client = ChatClient(
            model,
            base_url,
            where="data.env.judge",
            url_variable="LEARN2ASK_JUDGE_URL",
            api_key_variable=api_key_variable,
            max_retries=max_retries,
            **settings,
        )
        self.client.check()
        top_k_too = {} if top_k is None else {"top_k": top_k}
        self.max_tokens, self.sampling = max_tokens, _SAMPLING | top_k_too

    def score(self, dialogue: Dialogue, question: str, missing: Sequence[str]) -> JudgeVerdict:
        messages = messages_of(dialogue, question, missing)
        try:
            return self.client.ask_in_thread(
                messages, max_tokens=self.max_tokens, fields=self.sampling, read=verdict_of
            )
        except EndpointFailure as failure:
            raise EnvironmentFailure(f"the judge {self.client.model} gave no verdict: {failure}") from None


def messages_of(dialogue: Dialogue, question: str, missing: Sequence[str]) -> tuple[Message, Message]:
    """Instruction and material."""
    turns = [{"role": role, "text": text} for role, text in dialogue]
    material = {"dialogue": turns, "missing_items": list(missing), "question": question}
    return grading_messages(_INSTRUCTION, material)


def verdict_of(answer: ChatAnswer) -> JudgeVerdict:
    """The verdict, strictly read. Raises `ValueError` for whatever else the answer is."""
    found = graded_object(answer.text, frozenset({"format", "content", "note"}))
    for key in ("format", "content"):
        if isinstance(found[key], bool) or found[key] not in _GRADES:
            raise ValueError(f"the verdict's {key} is not one of 0, 0.5 and 1")
    return JudgeVerdict(format=float(found["format"]), content=float(found["content"]), note=one_line(found["note"]))
