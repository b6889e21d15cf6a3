"""Another mechanism, whose changes a list of rules may refuse: what a context may not say, and what it may not lose."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import regex
from msgspec import Struct, structs

from cod_lightning.contexts.base import (
    ContextMechanism,
    ContextUpdate,
    History,
    InTask,
    Intervention,
    TokenView,
    UpdateDialogue,
    beside,
)
from cod_lightning.contexts.stacked import StackedState
from cod_lightning.contexts.wrapped import WrappedContext
from cod_lightning.errors import ConfigError
from cod_lightning.hostile_text import hidden_letter, normal_form, with_tags_read
from cod_lightning.ranges import NonNegative
from cod_lightning.types import Episode, Message

_READINGS: tuple[Callable[[str], str], ...] = (str, normal_form, lambda text: normal_form(with_tags_read(text)))
_RULE_S = 1.0
"""For one rule and one text."""


class CheckedInTask(InTask["CheckedContext"]):
    """What the checked context does within a task."""

    def on_turn(self, state: Any, response: str, tokens: TokenView) -> Intervention | None:
        """That of the mechanism inside; where its new state would say what is forbidden, with the text of the old one."""
        found = beside(self.of.inside, InTask).on_turn(state, response, tokens)
        return found and structs.replace(found, state=self.of._allowed(state, found.state))

    def before_turn(self, state: Any, rules: str, messages: Sequence[Message], tokens: TokenView) -> History | None:
        """As `on_turn`."""
        found = beside(self.of.inside, InTask).before_turn(state, rules, messages, tokens)
        return found and structs.replace(found, state=self.of._allowed(state, found.state))

    def hooks(self) -> frozenset[str]:
        """Those of the mechanism inside: alone this one has nothing to check within a task."""
        return beside(self.of.inside, InTask).hooks()


class CheckedContext(WrappedContext):
    """Keeps the state of before where a change, as text, breaks a rule; states are those of the mechanism inside.

    Args:
        inside: The mechanism that keeps, shows and rewrites the context.
        forbidden: Regular expressions, whatever the case; a rewrite, and what a task leaves by itself, may say nothing new that one
            finds, in any spelling that a reader takes for the same (`normal_form`), and no letter that only a model sees.
        kept: Regular expressions; what one finds in the context of before, or in the record of the task, has to be in a rewritten
            one. Name what the environment alone can say: a text that others plant there is kept as well.
        penalty: Reward of a refused rewrite is minus this.
    """

    companions = (CheckedInTask,)

    def __init__(
        self,
        inside: ContextMechanism,
        forbidden: list[str] | None = None,
        kept: list[str] | None = None,
        penalty: NonNegative = 0.1,
    ) -> None:
        super().__init__(inside)
        self.penalty = penalty
        self.forbidden = _compiled("forbidden", forbidden, regex.IGNORECASE)
        self.kept = _compiled("kept", kept)

    def update(self, state: Any, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        """That of the mechanism inside; its result is refused where it breaks a rule."""
        found = yield from super().update(state, rules, episode, tokens)
        reason = self._broken(episode, self.text(state), self.text(found.state))
        if not reason:
            return found
        return ContextUpdate(state=state, reward=min(found.reward, -self.penalty), parsed=False, reason=reason)

    def feedback(self, state: Any, episode: Episode) -> Any:
        """That of the mechanism inside, unless it would say what is forbidden."""
        return self._allowed(state, super().feedback(state, episode))

    def _allowed(self, before: Any, after: Any) -> Any:
        """The new state; where it would say what is forbidden, the old one with what its text is not made of as it is now."""
        forbidden = self._newly_forbidden(self.text(before), self.text(after))
        return _with_what_is_not_shown(before, after, self.text) if forbidden else after

    def _broken(self, episode: Episode, before: str, after: str) -> str:
        """The rule that the new context breaks; empty for none."""
        if said := self._newly_forbidden(before, after):
            return f"the context says '{said}', which data.context.forbidden refuses"
        record = "\n".join([before, *(turn.observation for turn in episode.turns), episode.feedback])
        for rule in self.kept:
            lost = [found for found in _found(rule, record) if found not in after]
            if lost:
                return f"the context loses '{lost[0]}', which data.context.kept keeps"
        return ""

    def _newly_forbidden(self, before: str, after: str) -> str:
        """The first thing in the new context that is forbidden, and was not there before; empty for none."""
        if before == after:  # as between most turns
            return ""
        if letter := hidden_letter("".join(sorted({*after} - {*before}))):
            return letter
        for read in _READINGS:
            was, now = read(before), read(after)
            for rule in self.forbidden:
                there = set(_found(rule, was))
                if new := next((found for found in _found(rule, now) if found not in there), ""):
                    return new
        return ""


def _found(rule: Any, text: str) -> Iterator[str]:
    """What the rule finds. Raises `TimeoutError`, which costs the lifecycle: the policy's text may make a rule endless."""
    return (one[0] for one in rule.finditer(text, timeout=_RULE_S))


def _with_what_is_not_shown(before: Any, after: Any, shown: Callable[[Any], str]) -> Any:
    """The old state with all of the new one that leaves its text as it is, such as that an act was made."""
    if not isinstance(after, Struct) or type(before) is not type(after):
        return before
    text = shown(before)
    for put, was, now in _places(before, after):
        here = partial(put, before)
        before = here(_with_what_is_not_shown(was, now, lambda value, here=here: shown(here(value))))
        with suppress(Exception):  # of parts that do not go together
            before = here(now) if shown(here(now)) == text else before
    return before


def _places(before: Struct, after: Struct) -> Iterator[tuple[Callable[[Any, Any], Any], Any, Any]]:
    """What puts another value into a state, and the old and the new value, for each of its fields, or parts of a stack."""
    if isinstance(before, StackedState) and isinstance(after, StackedState):
        for index, (was, now) in enumerate(zip(before.states, after.states, strict=True)):
            yield lambda state, value, index=index: state.having(index, value), was, now
        return
    for name in after.__struct_fields__:
        yield (
            lambda state, value, name=name: structs.replace(state, **{name: value}),
            getattr(before, name),
            getattr(after, name),
        )


def _compiled(name: str, patterns: list[str] | None, flags: int = 0) -> list[Any]:
    try:
        return [regex.compile(pattern, flags) for pattern in patterns or []]
    except regex.error as error:
        expected = f"regular expressions ({error})"
        raise ConfigError(f"data.context.{name}", patterns, expected, "Correct them.") from None
