"""The blanked-context control, which shows whether it is the context through which later tasks get better."""

from collections.abc import Sequence

from cod_lightning.contexts.base import ContextMechanism, ContextUpdate
from cod_lightning.types import Episode, Message


class BlankedContext(ContextMechanism):
    """Another mechanism, except that a solve prompt always looks as it does before the first task.

    Everything else runs as usual: contexts are asked for, read, rewarded and carried on, so that the two conditions
    differ in nothing but what the solver sees.
    """

    def __init__(self, mechanism: ContextMechanism) -> None:
        self.mechanism = mechanism

    def empty(self) -> str:
        """As the wrapped mechanism."""
        return self.mechanism.empty()

    def inject(self, rules: str, context: str) -> str:
        """The system text of a first task, whatever the context says."""
        del context
        return self.mechanism.inject(rules, self.mechanism.empty())

    def ask(self, rules: str, episode: Episode) -> tuple[Message, ...]:
        """As the wrapped mechanism; the rewrite sees the previous context."""
        return self.mechanism.ask(rules, episode)

    def read(
        self, response: str, *, num_tokens: int, context_before: str, special_tokens: frozenset[str]
    ) -> ContextUpdate:
        """As the wrapped mechanism."""
        return self.mechanism.read(
            response, num_tokens=num_tokens, context_before=context_before, special_tokens=special_tokens
        )

    def asks(self, messages: Sequence[Message]) -> bool:
        """As the wrapped mechanism."""
        return self.mechanism.asks(messages)

    def write(self, context: str) -> str:
        """As the wrapped mechanism."""
        return self.mechanism.write(context)

    def words(self) -> tuple[str, ...]:
        """As the wrapped mechanism."""
        return self.mechanism.words()
