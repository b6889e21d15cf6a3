"""A person whose answers a language model words, behind an OpenAI-compatible chat endpoint."""

from collections.abc import Mapping

from cod_lightning.clients import ChatAnswer
from cod_lightning.clients.grading import QUOTED, graded_object, grading_messages, one_line
from cod_lightning.envs.apps.user import Voice
from cod_lightning.envs.asked_model import AskedModel

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
        key_variable: Environment variable that holds the key; without it, or if it is empty, no key is sent.
        tries: Requests for one answer.
        backoff_s: Pause after the first failed try; it doubles with each further one, up to 30 s, less up to a quarter.
        timeout_s: For one try, from connecting to the last byte.
        temperature: Of sampling.
        max_tokens: Of one answer, thinking included.
    """

    blocking = True

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        key_variable: str = "APPS_USER_KEY",
        tries: int = 4,
        backoff_s: float = 0.5,
        timeout_s: float = 60.0,
        temperature: float = 0.7,
        max_tokens: int = 1_000,
    ) -> None:
        self.model = AskedModel(
            model,
            base_url,
            where="data.env.voice",
            url_variable="APPS_USER_URL",
            key_variable=key_variable,
            tries=tries,
            backoff_s=backoff_s,
            timeout_s=timeout_s,
            max_tokens=max_tokens,
            sampling={"temperature": temperature},
        )

    def answer(self, question: str, goal: str, known: Mapping[str, str]) -> str:
        """The first readable answer. Raises `EnvironmentFailure` after the tries."""
        material = {"goal": goal, "known": list(known.values()), "question": question}
        complaint = f"the person {self.model.client.model} gave no answer"
        return self.model.answer(grading_messages(_INSTRUCTION, material), _read, complaint)


def _read(answer: ChatAnswer) -> str:
    """The answer in one line. Raises `ValueError` for whatever else it is."""
    return one_line(graded_object(answer.text, frozenset({"answer"}))["answer"])
