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
    ContextEntry,
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
from cod_lightning.methods.notebook import Entry, NotebookContext, NotebookEntries, NotebookScripted, NotebookState
from cod_lightning.methods.notebook_wording import Operation, OperationKind
from cod_lightning.ranges import Count, NonNegative
from cod_lightning.types import Episode, Message, Role


class ActsState(NotebookState, frozen=True):
    """The notebook, and what happened to it in the present task."""

    opened: tuple[int, ...] = ()
    """Numbers of the entries that are shown in full, the latest last."""
    seen: tuple[int, ...] = ()
    """Numbers of the entries that the latest task was shown in full at any time."""
    num_acts: int = 0
    acted: bool = False
    """Whether the latest response was an act, which leaves the dialogue now."""
    position: int = 0
    """Of the present task."""
    unread: str = ""
    """The feedback on the task before, where no update followed it."""


class ActsEntries(NotebookEntries):
    """The pieces of the notebook."""

    of: "ActsContext"

    def entries(self, state: Any) -> tuple[ContextEntry, ...]:
        """Entries by number; shown are those that the task was shown in full, or read."""
        seen = {str(number) for number in state.seen}
        return tuple(structs.replace(one, shown=one.key in seen) for one in super().entries(state))


class ActsScripted(NotebookScripted):
    """How scripted policies write the notebook."""

    of: "ActsContext"

    def adopt(self, note: str) -> ActsState:
        return self.of._opened(ActsState(super().adopt(note).entries))

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
        now = state if reason else self.of._edited(state, operations, state.position, tokens)
        refused = (reason,) if reason else now.refused
        return Intervention(structs.replace(now, refused=refused, num_acts=state.num_acts + 1, acted=True), reply="")

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
    """Entries that the policy adds, replaces, deletes and reads by acts within a task.

    A response that holds the first mark of an act is one, and the environment does not see it; it costs one of the task's acts even
    where it cannot be read. When all are spent, the environment sees every response.

    Args:
        protocol: Wording for language models (natural) or for tiny policies (compact).
        budget: Most tokens of all entries together; an operation that would exceed it is refused.
        max_entries: Most entries.
        max_acts: Most acts of a task.
        open_entries: Entries that are shown in full, the latest written or read; of others the number, and in natural wording the
            first words. Null shows all. Scripted policies do not read: leave it null in a warm start.
        penalty: As in the notebook, of an update, in programs that have updates.
        response_limit: Tokens suggested to the policy in natural prompts; null says nothing.
    """

    companions = (ActsEntries, ActsScripted, ActsInTask, ActsWords, *NotebookContext.companions)

    State: ClassVar[type[Struct]] = ActsState

    def __init__(
        self,
        protocol: Literal["natural", "compact"] = "natural",
        budget: Count = 512,
        max_entries: Count = 32,
        max_acts: Count = 4,
        open_entries: Count | None = None,
        penalty: NonNegative = 0.1,
        response_limit: Count | None = 1000,
    ) -> None:
        super().__init__(protocol, budget, max_entries, penalty, response_limit)
        self.wording: Any = ACTS_WORDINGS[protocol](max_entries, response_limit)
        self.max_acts, self.open_entries = max_acts, open_entries

    def prepare(self, state: Any, rules: str, observation: str) -> Prepared:
        return Prepared(self._system(state, rules), structs.replace(state, seen=state.opened))

    def feedback(self, state: ActsState, episode: Episode) -> ActsState:
        """The next task has all its acts, and is shown what the environment said last."""
        position, unread = episode.position + 1, episode.feedback
        return self._opened(ActsState(state.entries, (), state.opened, state.seen, position=position, unread=unread))

    def update(self, state: Any, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        found = yield from super().update(state, rules, episode, tokens)
        entries, refused = found.state.entries, found.state.refused
        kept = ActsState(entries, refused, opened=_latest(state, entries), position=state.position)
        return structs.replace(found, state=self._opened(kept))

    def _system(self, state: ActsState, rules: str) -> str:
        entries = [(entry.number, entry.text, entry.number in state.opened) for entry in state.entries]
        return self.wording.shown_notebook(rules, entries, self.max_acts - state.num_acts, state.refused, state.unread)

    def _edited(self, state: ActsState, operations: Sequence[Operation], position: int, tokens: TokenView) -> ActsState:
        """The state after these operations, with those that were refused."""
        changed = [one for one in operations if one.kind is not OperationKind.READ]
        now, refused = self._carried_out(state, changed, position, tokens)
        numbers = [entry.number for entry in now.entries]
        read = [one.number for one in operations if one.kind is OperationKind.READ]
        missing = tuple(f"read {number}: there is no entry {number}" for number in read if number not in numbers)
        latest = _latest(state, now.entries, read)
        edited = self._opened(structs.replace(state, entries=now.entries, refused=(*refused, *missing), opened=latest))
        return structs.replace(edited, seen=tuple(dict.fromkeys((*state.seen, *edited.opened))))

    def _opened(self, state: ActsState) -> ActsState:
        """The state with no more entries open than may be, and none that is gone."""
        numbers = [entry.number for entry in state.entries]
        if self.open_entries is None:
            return structs.replace(state, opened=tuple(numbers))
        there = [number for number in dict.fromkeys(state.opened or numbers) if number in numbers]
        return structs.replace(state, opened=tuple(there[-self.open_entries :]))


def _latest(state: ActsState, entries: Sequence[Entry], read: Sequence[int] = ()) -> tuple[int, ...]:
    """Numbers of what was open, then of the entries that have become other ones, then of those that were read."""
    before = {entry.number: entry for entry in state.entries}
    written = [entry.number for entry in entries if before.get(entry.number) != entry]
    return (*(number for number in state.opened if number not in (*written, *read)), *written, *read)
