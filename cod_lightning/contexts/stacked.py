"""Several memories at once, such as skills beside a hint: each has its own state, all are shown, and one update rewrites all."""

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from cod_lightning.contexts.base import (
    Budget,
    ContextEntry,
    ContextMechanism,
    ContextUpdate,
    Entries,
    InTask,
    Intervention,
    Prepared,
    Scripted,
    Spoken,
    Stored,
    TokenView,
    UpdateDialogue,
    Words,
    beside,
)
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.types import Episode, Message, Role

_BETWEEN = "\n\n\n"
"""Between the system text and the user's of a part whose update is not the first."""


class StackedState(Struct, frozen=True):
    """The states of the parts, in their order."""

    states: tuple[Any, ...] = ()

    def having(self, index: int, one: Any) -> "StackedState":
        """The states with one part's in place of the old."""
        return StackedState((*self.states[:index], one, *self.states[index + 1 :]))


class StackedEntries(Entries["StackedContext"]):
    """The pieces of the memories."""

    def entries(self, state: StackedState) -> tuple[ContextEntry, ...]:
        """Those of the parts, each known by its part's class and its key there."""
        return tuple(
            replace(entry, key=f"{type(part).__name__} {entry.key}")
            for part, one in zip(self.of.parts, state.states, strict=True)
            for entry in beside(part, Entries).entries(one)
        )


class StackedScripted(Scripted["StackedContext"]):
    """How scripted policies write the memories."""

    def adopt(self, note: str) -> StackedState:
        return StackedState(tuple(beside(part, Scripted).adopt(note) for part in self.of.parts))

    def asks(self, messages: Sequence[Message]) -> bool:
        return any(beside(part, Scripted).asks(messages) for part in self.of.parts)

    def write(self, note: str, messages: Sequence[Message]) -> str:
        """The answer of the part that asked last; what is shown to it is found in its own opening."""
        for place in range(len(messages) - 1, 1, -1):
            system, _, user = messages[place].content.partition(_BETWEEN)
            opening = (Message(Role.SYSTEM, system), Message(Role.USER, user))
            if messages[place].role is Role.USER and (part := self.of._asking(opening)) is not None:
                return beside(part, Scripted).write(note, opening)
        part = self.of._asking(messages)
        assert part is not None, "no part asks for anything"
        return beside(part, Scripted).write(note, messages)

    def respond(self, act: Spoken, note: Spoken, messages: Sequence[Message]) -> str:
        """As the part has it that answers within tasks."""
        part = next((part for part in self.of.parts if "on_turn" in beside(part, InTask).hooks()), self.of.parts[0])
        return beside(part, Scripted).respond(act, note, messages)


class StackedInTask(InTask["StackedContext"]):
    """What the memories do within a task."""

    def on_turn(self, state: StackedState, response: str, tokens: TokenView) -> Intervention | None:
        """What the part says that answers within tasks."""
        for index, part in enumerate(self.of.parts):
            found = beside(part, InTask).on_turn(state.states[index], response, tokens)
            if found is not None:
                return replace(found, state=state.having(index, found.state))
        return None

    def hooks(self) -> frozenset[str]:
        return frozenset().union(*(beside(part, InTask).hooks() for part in self.of.parts))


class StackedBudget(Budget["StackedContext"]):
    """The room for the memories."""

    def check(self, window: int, max_new_tokens: int) -> None:
        for part in self.of.parts:
            beside(part, Budget).check(window, max_new_tokens)


class StackedWords(Words["StackedContext"]):
    """The words of the memories."""

    def words(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(word for part in self.of.parts for word in beside(part, Words).words()))


class StackedStored(Stored["StackedContext"]):
    """The memories as text."""

    def dump(self, state: StackedState) -> str:
        """Each part's own dump, so that each checks its name and version."""
        kept = [beside(part, Stored).dump(one) for part, one in zip(self.of.parts, state.states, strict=True)]
        return super().dump(StackedState(tuple(kept)))

    def load(self, text: str) -> StackedState:
        kept = super().load(text).states
        if len(kept) != len(self.of.parts):
            raise DataError(
                f"a context's state has {len(kept)} parts; data.context.parts has {len(self.of.parts)}. Use the parts that "
                "wrote it."
            )
        return StackedState(
            tuple(beside(part, Stored).load(str(one)) for part, one in zip(self.of.parts, kept, strict=True))
        )


class StackedContext(ContextMechanism):
    """Memories side by side.

    A task begins with what the first part makes of the rules, which the second part takes for its rules, and so on. An update is
    one episode: the parts ask one after the other, its reward is the sum of theirs, and it parsed if all did.

    Args:
        parts: Mechanisms, of which at most one answers within tasks (`on_turn`).

    Raises:
        ConfigError: For no part, several of one class, two that answer within tasks, or one that replaces their history.
    """

    companions = (StackedEntries, StackedScripted, StackedInTask, StackedBudget, StackedWords, StackedStored)

    State: ClassVar[type[Struct]] = StackedState

    def __init__(self, parts: list[ContextMechanism]) -> None:
        names = [type(part).__name__ for part in parts]
        shown = ", ".join(names) or "empty"
        if not parts or len(set(names)) < len(names):
            expected = "mechanisms of different classes, at least one"
            raise ConfigError("data.context.parts", shown, expected, "Name each class once.")
        if replacing := [type(part).__name__ for part in parts if "before_turn" in beside(part, InTask).hooks()]:
            expected = f"mechanisms that leave a task's history alone, unlike {' and '.join(replacing)}"
            alone = "Use it as data.context; CompactingContext goes around others."
            raise ConfigError("data.context.parts", shown, expected, alone)
        answering = [type(part).__name__ for part in parts if "on_turn" in beside(part, InTask).hooks()]
        if len(answering) > 1:
            expected = f"at most one that answers within tasks, not {' and '.join(answering)}"
            raise ConfigError("data.context.parts", shown, expected, "Leave one out.")
        self.parts = tuple(parts)
        self.updates = any(part.updates for part in parts)

    def empty(self) -> StackedState:
        return StackedState(tuple(part.empty() for part in self.parts))

    def text(self, state: StackedState) -> str:
        """What the parts hold, each under the name of its class."""
        texts = ((type(part).__name__, part.text(one)) for part, one in zip(self.parts, state.states, strict=True))
        return "\n".join(f"{name}:\n{text}" for name, text in texts if text)

    def prepare(self, state: StackedState, rules: str, observation: str) -> Prepared:
        states: list[Any] = []
        for part, one in zip(self.parts, state.states, strict=True):
            prepared = part.prepare(one, rules, observation)
            rules = prepared.system
            states.append(prepared.state)
        return Prepared(rules, StackedState(tuple(states)))

    def feedback(self, state: StackedState, episode: Episode) -> StackedState:
        return StackedState(
            tuple(part.feedback(one, episode) for part, one in zip(self.parts, state.states, strict=True))
        )

    def update(self, state: StackedState, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        """The parts' own dialogues in turn; a later one opens with a user message that holds both its opening messages."""
        reward, parsed, reasons, opened = 0.0, True, list[str](), False
        for index, part in enumerate(self.parts):
            if not part.updates:
                continue
            one = state.states[index]
            asking = part.update(one, rules, replace(episode, context_before=part.text(one)), tokens)
            opening = next(asking)
            answer = yield _BETWEEN.join(message.content for message in opening) if opened else opening  # pyright: ignore
            opened = True
            while True:
                try:
                    further = asking.send(answer)
                except StopIteration as ended:
                    found: ContextUpdate = ended.value
                    break
                answer = yield further
            state = state.having(index, found.state)
            reward, parsed = reward + found.reward, parsed and found.parsed
            reasons += [f"{type(part).__name__}: {found.reason}"] if found.reason else []
        return ContextUpdate(state=state, reward=reward, parsed=parsed, reason="; ".join(reasons))

    def _asking(self, messages: Sequence[Message]) -> ContextMechanism | None:
        return next((part for part in self.parts if beside(part, Scripted).asks(messages)), None)
