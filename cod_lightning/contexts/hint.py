"""The context as one short text, rewritten after every task: the mechanism of the paper (arXiv 2606.20002)."""

import re
from collections.abc import Sequence
from typing import Literal

from cod_lightning.contexts.base import (
    ContextEntry,
    ContextUpdate,
    Entries,
    Prepared,
    TextState,
    TokenView,
    UpdateDialogue,
)
from cod_lightning.contexts.hint_wording import WORDINGS
from cod_lightning.contexts.worded import WordedContext, WordedScripted
from cod_lightning.errors import ConfigError, check_at_least
from cod_lightning.hostile_text import hidden_letter
from cod_lightning.types import Episode, Message

_DELIMITERS = tuple(text for wording in WORDINGS.values() for text in (wording.start, wording.end))
_BEGINS = {text: re.compile(f"(?={re.escape(text)})") for text in _DELIMITERS}
"""Where each is spelled, overlaps counted: two lines of dashes can share one."""


class HintEntries(Entries["HintContext"]):
    """The pieces of the hint."""

    def entries(self, state: TextState) -> tuple[ContextEntry, ...]:
        return (ContextEntry("hint", state.text),) if state.text else ()


class HintScripted(WordedScripted["HintContext"]):
    """How scripted policies write the hint."""

    def adopt(self, note: str) -> TextState:
        return TextState(note)

    def write(self, note: str, messages: Sequence[Message]) -> str:
        return self.of.wording.write(note)


class HintContext(WordedContext):
    """A hint between two delimiters, strictly parsed.

    Differs from the reference in one default: a rewrite that does not parse keeps the previous hint instead of losing it.

    Args:
        protocol: Wording for language models (natural) or for tiny policies (compact).
        on_failure: What an unparsable rewrite leaves: the previous hint (keep), or none, as in the reference (lose).
        penalty: Reward of an unparsable or too short rewrite is minus this; also the bottom of the length ramp.
        min_length: Fewest tokens of a response; below it the reward is minus the penalty. Null sets no bound.
        soft_length: Tokens up to which a response costs nothing; set together with hard_length, or null for no ramp.
        hard_length: Tokens from which a response costs the whole penalty.
        response_limit: Tokens suggested to the policy in natural prompts; null says nothing.

    Raises:
        ConfigError: For a value that cannot work, with its key `data.context.*`.
    """

    companions = (HintEntries, HintScripted, *WordedContext.companions)

    def __init__(
        self,
        protocol: Literal["natural", "compact"] = "natural",
        on_failure: Literal["keep", "lose"] = "keep",
        penalty: float = 0.1,
        min_length: int | None = None,
        soft_length: int | None = None,
        hard_length: int | None = None,
        response_limit: int | None = 1000,
    ) -> None:
        super().__init__(protocol, WORDINGS, penalty, response_limit)
        if on_failure not in ("keep", "lose"):
            raise ConfigError("data.context.on_failure", on_failure, "keep or lose", "keep is the default.")
        _check_lengths(min_length, soft_length, hard_length)
        self.wording = WORDINGS[protocol]
        self.on_failure = on_failure
        self.min_length, self.soft_length, self.hard_length = min_length, soft_length, hard_length

    def text(self, state: TextState) -> str:
        return state.text

    def prepare(self, state: TextState, rules: str, observation: str) -> Prepared:
        return Prepared(self.wording.inject(rules, state.text, self.response_limit), state)

    def update(self, state: TextState, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        """One answer: the text between the delimiters, each of which occurs once and in order, with nothing after the second."""
        answer = yield self.wording.ask(rules, episode, self.response_limit)
        hint, reason = self._parse(answer.response, tokens)
        if reason:
            kept = state if self.on_failure == "keep" else TextState(self.wording.lost)
            return ContextUpdate(state=kept, reward=-self.penalty, parsed=False, reason=reason)
        return ContextUpdate(state=TextState(hint), reward=self._length_reward(answer.num_tokens), parsed=True)

    def _parse(self, response: str, tokens: TokenView) -> tuple[str, str]:
        """(hint, "") or ("", which rule was broken)."""
        start, end = self.wording.start, self.wording.end
        for delimiter in (start, end):
            if (count := len(_BEGINS[delimiter].findall(response))) != 1:
                return "", f"'{delimiter}' occurs {count} times; expected exactly once"
        begin, stop = response.index(start) + len(start), response.index(end)
        if stop < begin:
            return "", f"'{end}' does not come after '{start}'"
        hint, after = response[begin:stop].strip(), response[stop + len(end) :]
        if after.strip():
            return "", f"there is text after '{end}'"
        if not hint:
            return "", "the hints are empty"
        if token := tokens.control_token(hint):
            return "", f"the hints contain the control token '{token}'"
        if letter := hidden_letter(hint):
            return "", f"the hints contain the letter {letter}, which no reader sees"
        if spelled := [text for text in _DELIMITERS if text in hint]:
            return "", f"the hints contain the delimiter '{spelled[0]}'"
        return hint, ""

    def _length_reward(self, num_tokens: int) -> float:
        """0 within bounds; minus the penalty when too short; a linear ramp between the soft and the hard length."""
        if self.min_length is not None and num_tokens < self.min_length:
            return -self.penalty
        if self.soft_length is None or self.hard_length is None:
            return 0.0
        excess = (num_tokens - self.soft_length) / (self.hard_length - self.soft_length)
        return -self.penalty * min(1.0, max(0.0, excess))


def _check_lengths(min_length: int | None, soft_length: int | None, hard_length: int | None) -> None:
    """None is negative, the ramp has both ends or neither, and min <= soft < hard."""
    bounds = {"min_length": min_length, "soft_length": soft_length, "hard_length": hard_length}
    for name, bound in bounds.items():
        check_at_least(f"data.context.{name}", bound, 0, "Null sets no bound.")
    if soft_length is None and hard_length is None:
        return
    if soft_length is None or hard_length is None or soft_length >= hard_length:
        expected = f"above data.context.soft_length={soft_length}"
        raise ConfigError("data.context.hard_length", hard_length, expected, "Set both or neither.")
    if min_length is not None and min_length > soft_length:
        raise ConfigError("data.context.min_length", min_length, f"at most soft_length={soft_length}", "Lower it.")
