"""A notebook that the policy reads, writes and deletes in while it solves a task: each such act is a turn of the task.

    [rules, entries] observation 0                         -> add: 1=up          (an act: the environment does not see it)
    [rules, entries, 1=up] observation 0                   -> action 1
    [rules, entries, 1=up] observation 0, action 1, observation 1 -> ...

Source: Memory-as-Action and its Dynamic Context Policy Optimization (arXiv 2510.12635): edits of the working memory are actions of
the policy; they fracture the trajectory, which is cut there into segments that all carry the trajectory's advantage among its
siblings. Differs from it: what is edited is a notebook that outlives its task, not the task's own turns, which stay; an act costs
no turn of the environment and leaves the dialogue, since its effect shows in the system text; acts are budgeted, where there a
reward punishes a context that is too long; the advantage is that of the episode, whose return holds later tasks' rewards.

With `every: null` of the program there are no update episodes; with others an update edits the notebook once more after its task.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from msgspec import Struct, structs

from cod_lightning.contexts.base import (
    History,
    InTask,
    Intervention,
    Prepared,
    Spoken,
    TokenView,
    UpdateDialogue,
)
from cod_lightning.contexts.worded import WordedWords
from cod_lightning.methods.acts_wording import ACTS_WORDINGS
from cod_lightning.methods.notebook import NotebookContext, NotebookScripted, NotebookState
from cod_lightning.ranges import Count, NonNegative
from cod_lightning.types import Episode, Message, Role


class ActsState(NotebookState, frozen=True):
    """The notebook, and what happened to it in the present task."""

    num_acts: int = 0
    acted: bool = False
    """Whether the latest response was an act, which leaves the dialogue now."""
    position: int = 0
    """Of the present task."""
    unread: str = ""
    """The feedback on the task before, where no update followed it."""


class ActsScripted(NotebookScripted):
    """How scripted policies write the notebook."""

    of: "ActsContext"

    def adopt(self, note: str) -> ActsState:
        return ActsState(super().adopt(note).entries)

    def respond(self, act: Spoken, note: Spoken, messages: Sequence[Message]) -> str:
        """At most one act a turn of the environment, where the note differs from the entries; otherwise the action."""
        left = self.of.wording.acts_left(messages)
        due = left > 0 and self.of.max_acts - left <= (len(messages) - 2) // 2
        noted = note(messages) if due else ""
        if noted and set(self.of.wording.parts(noted)) != {text for _, text in self.of.wording.shown(messages)}:
            return self.write(noted, messages)
        return act(messages)


class ActsInTask(InTask["ActsContext"]):
    """What the notebook does within a task."""

    def on_turn(self, state: ActsState, response: str, tokens: TokenView) -> Intervention | None:
        if self.of.wording.start not in response or state.num_acts >= self.of.max_acts:
            return None
        operations, reason = self.of.wording.read(response)
        now, refused = state, (reason,)
        if not reason:
            now, refused = self.of._carried_out(state, operations, state.position, tokens)
        after = structs.replace(state, entries=now.entries, refused=refused, num_acts=state.num_acts + 1, acted=True)
        return Intervention(after, reply="")

    def before_turn(
        self, state: ActsState, rules: str, messages: Sequence[Message], tokens: TokenView
    ) -> History | None:
        """After an act the dialogue goes on without it, under a system text with the entries as they are now."""
        if not state.acted:
            return None
        system = Message(Role.SYSTEM, self.of._system(state, rules))
        return History(structs.replace(state, acted=False), (system, *messages[1:-2]))


class ActsWords(WordedWords["ActsContext"]):
    """The words of the notebook."""

    def words(self) -> tuple[str, ...]:
        return (*self.of.wording.words(), *(f"acts={left}" for left in range(self.of.max_acts + 1)))


class ActsContext(NotebookContext):
    """Entries that the policy adds, replaces and deletes by acts within a task.

    A response that holds the first mark of an act is one, and the environment does not see it; it costs one of the task's acts even
    where it cannot be read. When all are spent, the environment sees every response.

    Args:
        protocol: Wording for language models (natural) or for tiny policies (compact).
        budget: Most tokens of all entries together; an operation that would exceed it is refused.
        max_entries: Most entries.
        max_acts: Most acts of a task.
        penalty: As in the notebook, of an update, in programs that have updates.
        response_limit: Tokens suggested to the policy in natural prompts; null says nothing.
    """

    companions = (ActsScripted, ActsInTask, ActsWords, *NotebookContext.companions)

    State: ClassVar[type[Struct]] = ActsState

    def __init__(
        self,
        protocol: Literal["natural", "compact"] = "natural",
        budget: Count = 512,
        max_entries: Count = 32,
        max_acts: Count = 4,
        penalty: NonNegative = 0.1,
        response_limit: Count | None = 1000,
    ) -> None:
        super().__init__(protocol, budget, max_entries, penalty, response_limit)
        self.wording: Any = ACTS_WORDINGS[protocol](max_entries, response_limit)
        self.max_acts = max_acts

    def prepare(self, state: Any, rules: str, observation: str) -> Prepared:
        return Prepared(self._system(state, rules), state)

    def feedback(self, state: ActsState, episode: Episode) -> ActsState:
        """The next task has all its acts, and is shown what the environment said last."""
        return ActsState(state.entries, position=episode.position + 1, unread=episode.feedback)

    def update(self, state: Any, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        found = yield from super().update(state, rules, episode, tokens)
        kept = ActsState(found.state.entries, found.state.refused, position=state.position)
        return structs.replace(found, state=kept)

    def _system(self, state: ActsState, rules: str) -> str:
        entries = [(entry.number, entry.text) for entry in state.entries]
        return self.wording.shown_notebook(rules, entries, self.max_acts - state.num_acts, state.refused, state.unread)
