"""One bounded state, which each turn of a task rewrites and which replaces the history; the last one goes to the next task.

    [rules, state 0] observation 0                -> state 1, action 1
    [rules, state 1] observation 0, observation 1 -> state 2, action 2
    [rules, state 2] observation 0, observation 2 -> state 3, action 3

Source: MEM1 (arXiv 2506.15841), where a response holds an internal state and a query, and the next prompt holds the task, this
response and its result alone. Differs from it: the state outlives its task, and so does the environment's feedback until a state
was written that could read it; the state stands in the system text, and the latest action is not shown; each turn is a training
row with just the prompt that it was sampled from, where MEM1 stitches them together under a two-dimensional attention mask; the
advantage is that of the episode among its siblings, without a critic; a state over the budget is refused.

With `every: null` of the program there are no update episodes; with others an update rewrites the state once more after its task.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from msgspec import Struct, structs

from cod_lightning.contexts.base import (
    Budget,
    ContextEntry,
    ContextUpdate,
    Entries,
    History,
    InTask,
    Intervention,
    Prepared,
    Spoken,
    TokenView,
    UpdateDialogue,
)
from cod_lightning.contexts.inside_wording import unfit
from cod_lightning.contexts.worded import WordedContext, WordedScripted
from cod_lightning.errors import ConfigError
from cod_lightning.methods.constant_state_wording import STATE_WORDINGS
from cod_lightning.ranges import Count, NonNegative
from cod_lightning.types import Episode, Message, Role


class ConstantState(Struct, frozen=True):
    """What is carried."""

    text: str = ""
    task: str = ""
    """The first observation of the present task; empty between tasks."""
    unread: str = ""
    """The feedback on the latest task, which no state was written after."""
    refused: str = ""
    """Why the latest state was refused, if it was; the one before then stays."""


class StateBudget(Budget["ConstantStateContext"]):
    """The room for the state."""

    def check(self, window: int, max_new_tokens: int) -> None:
        most = max_new_tokens - 3  # tokens beside the state, at least: its two marks and an action
        if self.of.budget > most:
            expected = f"at most {most}, 3 below data.max_new_tokens={max_new_tokens}, for two marks and an action"
            remedy = f"Lower it, or set data.max_new_tokens to {self.of.budget + 3} or more."
            raise ConfigError("data.context.budget", self.of.budget, expected, remedy)


class StateEntries(Entries["ConstantStateContext"]):
    """The pieces of the state."""

    def entries(self, state: ConstantState) -> tuple[ContextEntry, ...]:
        return (ContextEntry("state", state.text),) if state.text else ()


class StateScripted(WordedScripted["ConstantStateContext"]):
    """How scripted policies write the state."""

    def adopt(self, note: str) -> ConstantState:
        return ConstantState(note)

    def write(self, note: str, messages: Sequence[Message]) -> str:
        return self.of.wording.write(note)

    def respond(self, act: Spoken, note: Spoken, messages: Sequence[Message]) -> str:
        """The note as state, then the action that follows from it."""
        text = note(messages)
        if not text:
            return act(messages)
        noted = Message(Role.SYSTEM, self.of.wording.join(messages[0].content, text))
        return self.of.wording.join(self.of.wording.write(text), act((noted, *messages[1:])))


class StateInTask(InTask["ConstantStateContext"]):
    """What the state does within a task."""

    def on_turn(self, state: ConstantState, response: str, tokens: TokenView) -> Intervention:
        text, action, reason = self.of._read(response, tokens)
        after = structs.replace(state, refused=reason) if reason else ConstantState(text, state.task)
        return Intervention(after, action=action)

    def before_turn(self, state: ConstantState, rules: str, messages: Sequence[Message], tokens: TokenView) -> History:
        seen = self.of.wording.resumed(state.task, messages[-1].content)
        return History(state, (Message(Role.SYSTEM, self.of._system(state, rules)), Message(Role.USER, seen)))


class ConstantStateContext(WordedContext):
    """A state that each response of a task begins with, and that is all the next one sees of what came before.

    The environment sees what follows the state. A response without a readable state keeps the old one, and the environment sees it
    whole.

    Args:
        protocol: Wording for language models (natural) or for tiny policies (compact).
        budget: Most tokens of the state; a longer one is refused. At least three below `data.max_new_tokens`.
        penalty: Reward of an update that does not parse is minus this, in programs that have updates.
        response_limit: Tokens suggested to the policy in natural prompts; null says nothing.
    """

    companions = (StateBudget, StateEntries, StateScripted, StateInTask, *WordedContext.companions)

    State: ClassVar[type[Struct]] = ConstantState

    def __init__(
        self,
        protocol: Literal["natural", "compact"] = "natural",
        budget: Count = 256,
        penalty: NonNegative = 0.1,
        response_limit: Count | None = 1000,
    ) -> None:
        super().__init__(penalty, response_limit)
        self.wording, self.budget = STATE_WORDINGS[protocol](budget, response_limit), budget

    def text(self, state: ConstantState) -> str:
        return state.text

    def prepare(self, state: ConstantState, rules: str, observation: str) -> Prepared:
        return Prepared(self._system(state, rules), structs.replace(state, task=observation))

    def feedback(self, state: ConstantState, episode: Episode) -> ConstantState:
        """What the environment said last is shown once more, to the next task."""
        return ConstantState(state.text, unread=episode.feedback)

    def update(self, state: ConstantState, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        answer = yield self.wording.ask(rules, episode)
        text, _, reason = self._read(answer.response, tokens)
        if reason:
            return ContextUpdate(state=state, reward=-self.penalty, parsed=False, reason=reason)
        return ContextUpdate(state=ConstantState(text), reward=0.0, parsed=True)

    def _system(self, state: ConstantState, rules: str) -> str:
        return self.wording.inject(rules, state.text, state.unread, state.refused)

    def _read(self, response: str, tokens: TokenView) -> tuple[str, str, str]:
        """State, action, and why the state is refused."""
        text, action, reason = self.wording.read(response)
        return text, action, reason or unfit("state", text, self.budget, tokens)
