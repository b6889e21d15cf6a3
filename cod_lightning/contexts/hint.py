"""The context as one short text, rewritten after every task: the mechanism of the paper (arXiv 2606.20002)."""

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
from cod_lightning.contexts.worded import WordedContext, WordedScripted, text_between, unkept
from cod_lightning.ranges import Count, NonNegative
from cod_lightning.types import Episode, Message

_DELIMITERS = tuple(text for wording in WORDINGS.values() for text in (wording.start, wording.end))


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

    Differs from the reference: a rewrite that does not parse keeps the previous hint by default instead of losing it, one with text
    after the second delimiter does not parse, and before the first rewrite no section stands in its place, there `Hints: null`.

    Args:
        protocol: Wording for language models (natural) or for tiny policies (compact).
        on_failure: What an unparsable rewrite leaves: the previous hint (keep), or none, as in the reference (lose).
        penalty: Reward of an unparsable rewrite is minus this. `OverlongReward` is for long ones.
        response_limit: Tokens suggested to the policy in natural prompts; null says nothing.

    Raises:
        ConfigError: For a value that cannot work, with its key `data.context.*`.
    """

    companions = (HintEntries, HintScripted, *WordedContext.companions)

    def __init__(
        self,
        protocol: Literal["natural", "compact"] = "natural",
        on_failure: Literal["keep", "lose"] = "keep",
        penalty: NonNegative = 0.1,
        response_limit: Count | None = 1000,
    ) -> None:
        super().__init__(penalty, response_limit)
        self.wording = WORDINGS[protocol]
        self.on_failure = on_failure

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
        return ContextUpdate(state=TextState(hint), reward=0.0, parsed=True)

    def _parse(self, response: str, tokens: TokenView) -> tuple[str, str]:
        """(hint, "") or ("", which rule was broken)."""
        hint, reason = text_between(response, self.wording.start, self.wording.end)
        if reason or not hint:
            return "", reason or "the hints are empty"
        if reason := unkept("hint", hint, tokens):
            return "", reason
        if spelled := [text for text in _DELIMITERS if text in hint]:
            return "", f"the hints contain the delimiter '{spelled[0]}'"
        return hint, ""
