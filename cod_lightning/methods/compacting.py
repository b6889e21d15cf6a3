"""A task that grows too long is summarised by the policy, and goes on from its summary; around any other context mechanism.

    [system] observation 0, action 1, ..., observation n + request          -> summary
    [system with the summary] observation 0, observation n                  -> action n + 1

Source: CompactionRL (arXiv 2607.05378), which trains summaries by the reward of the task that they serve, and the compaction that
users of verifiers, verl and NeMo-RL ask for: past a token budget the policy is asked for a summary, and the next prompt is the
task and this summary. Differs from CompactionRL: no critic and no advantage across segments by value estimates, since all rows of
an episode carry the episode's advantage among its siblings, summaries included; the reward comes at the end of an episode, so this
is the reward-to-go of each of them. The task's first observation stays, where verifiers leaves it to the summary.
"""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cod_lightning.contexts.base import (
    Budget,
    ContextEntry,
    ContextMechanism,
    Entries,
    History,
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
from cod_lightning.contexts.inside_wording import unfit
from cod_lightning.errors import ConfigError
from cod_lightning.methods.compacting_wording import SUMMARY_WORDINGS
from cod_lightning.ranges import Count
from cod_lightning.types import Episode, Message, Role


class Compacted(Struct, frozen=True):
    """The state of the mechanism within, and where the present task is."""

    inner: Any
    task: str = ""
    """Its first observation; empty between tasks."""
    summary: str = ""
    """Of the task so far."""
    asked: bool = False
    """Whether the next response is a summary."""
    answered: bool = False
    """Whether the latest one was, so that the history goes now."""
    unseen: bool = False
    """Whether the inner mechanism answered the latest response in the environment's place."""


class CompactingBudget(Budget["CompactingContext"]):
    """The room for summaries."""

    def check(self, window: int, max_new_tokens: int) -> None:
        if self.of.summary_budget > max_new_tokens:
            expected = f"at most data.max_new_tokens={max_new_tokens}"
            raise ConfigError("data.context.summary_budget", self.of.summary_budget, expected, "Lower it.")
        if self.of.budget + max_new_tokens >= window:
            expected = f"below {window - max_new_tokens}: model.policy.window={window} less data.max_new_tokens={max_new_tokens}"
            raise ConfigError(
                "data.context.budget", self.of.budget, expected, "Lower it, so that a summary still fits."
            )
        beside(self.of.inside, Budget).check(window, max_new_tokens)


class CompactingInTask(InTask["CompactingContext"]):
    """What summaries do within a task."""

    def on_turn(self, state: Compacted, response: str, tokens: TokenView) -> Intervention | None:
        """A summary that was asked for; any other response is the inner mechanism's."""
        if state.asked:
            unread = not response.strip() or unfit("summary", response, self.of.summary_budget, tokens)
            kept = state.summary if unread else response.strip()
            return Intervention(Compacted(state.inner, state.task, kept, answered=True), reply="")
        found = beside(self.of.inside, InTask).on_turn(state.inner, response, tokens)
        unseen = found is not None and found.reply is not None
        return found and replace(found, state=replace(state, inner=found.state, unseen=unseen))

    def before_turn(
        self, state: Compacted, rules: str, messages: Sequence[Message], tokens: TokenView
    ) -> History | None:
        """After a summary the task goes on without its history; where the turns so far are too long, one is asked for."""
        rules = self.of.wording.inject(rules, state.summary)
        if state.answered:
            latest = messages[-3].content.removesuffix(self.of.wording.request)
            prepared = self.of.inside.prepare(state.inner, rules, state.task)
            seen = self.of.wording.resumed(state.task, latest)
            begun = replace(state, inner=prepared.state, answered=False)
            return History(begun, (Message(Role.SYSTEM, prepared.system), Message(Role.USER, seen)))
        found = beside(self.of.inside, InTask).before_turn(state.inner, rules, messages, tokens)
        if found is not None:
            state, messages = replace(state, inner=found.state), found.messages
        if state.unseen:
            state = replace(state, unseen=False)
            return History(state, tuple(messages))
        if len(messages) > 2 and sum(tokens.count(message.content) for message in messages[2:]) > self.of.budget:
            asking = Message(Role.USER, messages[-1].content + self.of.wording.request)
            return History(replace(state, asked=True), (*messages[:-1], asking))
        return found and History(state, found.messages)


class CompactingScripted(Scripted["CompactingContext"]):
    """How scripted policies write summaries; all else as the mechanism within."""

    def adopt(self, note: str) -> Compacted:
        return Compacted(beside(self.of.inside, Scripted).adopt(note))

    def respond(self, act: Spoken, note: Spoken, messages: Sequence[Message]) -> str:
        return beside(self.of.inside, Scripted).respond(act, note, messages)

    def asks(self, messages: Sequence[Message]) -> bool:
        return beside(self.of.inside, Scripted).asks(messages) or messages[-1].content.endswith(self.of.wording.request)

    def write(self, note: str, messages: Sequence[Message]) -> str:
        return (
            beside(self.of.inside, Scripted).write(note, messages)
            if beside(self.of.inside, Scripted).asks(messages)
            else note
        )


class CompactingWords(Words["CompactingContext"]):
    """The words of summaries."""

    def words(self) -> tuple[str, ...]:
        return (*beside(self.of.inside, Words).words(), *self.of.wording.words())


class CompactingEntries(Entries["CompactingContext"]):
    """Those of the mechanism within."""

    def entries(self, state: Compacted) -> tuple[ContextEntry, ...]:
        return beside(self.of.inside, Entries).entries(state.inner)


class CompactingStored(Stored["CompactingContext"]):
    """The state within: an agent may go on without summaries."""

    def dump(self, state: Compacted) -> str:
        return beside(self.of.inside, Stored).dump(state.inner)

    def load(self, text: str) -> Compacted:
        return Compacted(beside(self.of.inside, Stored).load(text))


class CompactingContext(ContextMechanism):
    """Any context mechanism, in tasks that are summarised where they grow long.

    Between two summaries the environment takes at least one turn. After one the inner mechanism begins anew, as its system text
    does: a skill is chosen again, and its steps are shown again. A summary that is empty, over its budget or holds a control token
    is refused: the task goes on from the one before it, if there was any.

    Args:
        inner: What is carried from task to task.
        protocol: Wording of the request for language models (natural) or for tiny policies (compact).
        budget: Tokens of a task's turns so far, since its beginning or the latest summary, beyond which a summary is asked for.
        summary_budget: Most tokens of a summary. It has to be at most `data.max_new_tokens`, and is best below `budget`.
    """

    State = Compacted
    companions = (
        *(CompactingBudget, CompactingInTask, CompactingScripted, CompactingWords),
        *(CompactingEntries, CompactingStored),
    )

    def __init__(
        self,
        inner: ContextMechanism,
        protocol: Literal["natural", "compact"] = "natural",
        budget: Count = 4096,
        summary_budget: Count = 512,
    ) -> None:
        self.inside, self.updates = inner, inner.updates
        self.wording = SUMMARY_WORDINGS[protocol](summary_budget)
        self.budget, self.summary_budget = budget, summary_budget

    def empty(self) -> Compacted:
        return Compacted(self.inside.empty())

    def text(self, state: Compacted) -> str:
        return self.inside.text(state.inner)

    def prepare(self, state: Compacted, rules: str, observation: str) -> Prepared:
        prepared = self.inside.prepare(state.inner, rules, observation)
        return Prepared(prepared.system, Compacted(prepared.state, observation))

    def update(self, state: Compacted, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        found = yield from self.inside.update(state.inner, rules, episode, tokens)
        return replace(found, state=Compacted(found.state))

    def feedback(self, state: Compacted, episode: Episode) -> Compacted:
        return Compacted(self.inside.feedback(state.inner, episode))
