"""The tokens around a thought, and what closes one whose budget is used up."""

from collections.abc import Sequence

from cod_lightning.errors import ConfigError
from cod_lightning.rollout.chat import Chat

_MARKS = ("<think>", "</think>")
_END = "\n</think>\n\n"


def thought_marks(chat: Chat) -> tuple[int, int]:
    """The tokens around a thought. Raises `ConfigError` for a tokenizer without them."""
    backend = chat.backend
    found = [backend and backend.token_to_id(mark) for mark in _MARKS]
    if None in found:
        expected = f"null for a tokenizer without the tokens {' and '.join(_MARKS)}"
        raise ConfigError("data.thinking_budget", "set", expected, "Leave it out, or choose a model that thinks.")
    return found[0], found[1]


def end_of_thought(chat: Chat, prompt: Sequence[int], sampled: Sequence[int]) -> tuple[int, ...]:
    """Ids that close the thought which is open after prompt and sampled ids; none where there is none."""
    begin, end = thought_marks(chat)
    marks = [i for i in (*prompt, *sampled) if i in (begin, end)]
    return chat.encode(_END) if marks and marks[-1] == begin else ()
