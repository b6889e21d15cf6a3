"""A context mechanism asked one thing at a time, as the rollout would ask it."""

from collections.abc import Sequence

from cod_lightning.contexts.base import Answer, ContextMechanism, ContextUpdate, Scripted, beside
from cod_lightning.types import Episode, Message
from tests.records import episode


class LetterTokens:
    """Counts a token a word."""

    def __init__(self, special_tokens=frozenset()):
        self._special = frozenset(special_tokens)

    def control_token(self, text: str) -> str:
        return min((token for token in self._special if token in text), default="")

    def count(self, text: str) -> int:
        return len(text.split())


def shown(mechanism: ContextMechanism, rules: str, note: str, observation: str = "") -> str:
    """The system text of a task that begins with this note as its context."""
    return mechanism.prepare(
        beside(mechanism, Scripted).adopt(note) if note else mechanism.empty(), rules, observation
    ).system


def opened(mechanism: ContextMechanism, rules: str, episode: Episode) -> tuple[Message, ...]:
    """The messages that open the update after this episode."""
    state = beside(mechanism, Scripted).adopt(episode.context_before) if episode.context_before else mechanism.empty()
    return tuple(next(mechanism.update(state, rules, episode, LetterTokens())))


def answered(
    mechanism: ContextMechanism,
    responses: Sequence[str] | str,
    *,
    state=None,
    special_tokens=frozenset(),
    position: int = 0,
) -> ContextUpdate:
    """What the update makes of these responses, one a turn."""
    before = mechanism.empty() if state is None else state
    solved = episode(position=position, state_after=before)
    dialogue = mechanism.update(before, "rules", solved, LetterTokens(special_tokens))
    next(dialogue)
    for response in [responses] if isinstance(responses, str) else responses:
        try:
            dialogue.send(Answer(response=response, cut_off=False))
        except StopIteration as stop:
            return stop.value
    raise AssertionError("the mechanism asks for more than these responses")
