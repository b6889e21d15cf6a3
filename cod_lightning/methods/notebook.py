"""A context of numbered entries, edited by small operations: add, replace, delete.

Sources: the itemised, incrementally edited contexts of ACE (arXiv 2510.04618) and the memory operations of Memory-R1 (arXiv
2508.19828). Differs from both: one dialogue of the trained policy writes the operations (ACE has three roles, Memory-R1 a
manager of its own), every entry is shown to every task, and an operation that cannot be carried out is refused on its own while
the others hold.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from cod_lightning.contexts.base import ContextEntry, ContextUpdate, Entries, Prepared, TokenView, UpdateDialogue
from cod_lightning.contexts.blocks import fault
from cod_lightning.contexts.provenance import Provenance, ProvenancedWords
from cod_lightning.contexts.worded import WordedContext, WordedScripted
from cod_lightning.methods.notebook_wording import WORDINGS, Operation, OperationKind
from cod_lightning.ranges import Count, NonNegative
from cod_lightning.types import Episode, Message


class Entry(Struct, frozen=True):
    """One entry of a notebook."""

    number: int
    """What operations call it by, from 1 on; the lowest free one, so that a closed vocabulary has a word for each."""
    text: str
    since: int
    """Position of the task after which it was written or last replaced."""
    solved: bool | None = None
    """Whether that task was solved; None: it was handed over, or that is not known."""
    written: bool = False
    """Whether it was written after a task, not handed over; in older states only `solved`, where it is known, says so."""


class NotebookState(Struct, frozen=True):
    """Entries in order of their numbers."""

    entries: tuple[Entry, ...] = ()
    refused: tuple[str, ...] = ()
    """Operations of the latest update that were refused, each with the reason."""


class NotebookEntries(Entries["NotebookContext"]):
    """The pieces of the notebook."""

    def entries(self, state: NotebookState) -> tuple[ContextEntry, ...]:
        """Entries by number, which no two have at a time."""
        return tuple(ContextEntry(str(entry.number), entry.text) for entry in state.entries)


class NotebookScripted(WordedScripted["NotebookContext"]):
    """How scripted policies write the notebook."""

    def adopt(self, note: str) -> NotebookState:
        """An entry for each part of the note, as the wording divides it; what is beyond `max_entries` is left out."""
        parts = self.of.wording.parts(note)[: self.of.max_entries]
        return NotebookState(tuple(Entry(number, text, 0) for number, text in enumerate(parts, start=1)))

    def write(self, note: str, messages: Sequence[Message]) -> str:
        """Operations that make the entries those of the note: what is not in it goes, what is missing comes."""
        present = {number: self.of.provenance.read(text) for number, text in self.of.wording.shown(messages)}
        wanted = self.of.wording.parts(note)
        stale = [number for number, text in present.items() if text not in wanted]
        missing = [text for text in dict.fromkeys(wanted) if text not in present.values()]
        operations = [
            Operation(OperationKind.REPLACE, number, text) for number, text in zip(stale, missing, strict=False)
        ]
        operations += [Operation(OperationKind.DELETE, number) for number in stale[len(missing) :]]
        operations += [Operation(OperationKind.ADD, 0, text) for text in missing[len(stale) :]]
        return self.of.wording.write(operations)


class NotebookContext(WordedContext):
    """Entries that the policy adds, replaces and deletes.

    Args:
        protocol: Wording for language models (natural) or for tiny policies (compact).
        budget: Most tokens of all entries together; an operation that would exceed it is refused.
        max_entries: Most entries.
        penalty: Reward of an update without a readable operation is minus this; where some are refused, their share of it.
        response_limit: Tokens suggested to the policy in natural prompts; null says nothing.
        provenance: Whether an entry is shown with where it comes from: handed over before the first task, or written after which
            task, and whether that one was solved. It counts in the budget.
    """

    companions = (NotebookEntries, NotebookScripted, ProvenancedWords, *WordedContext.companions)

    State: ClassVar[type[Struct]] = NotebookState

    def __init__(
        self,
        protocol: Literal["natural", "compact"] = "natural",
        budget: Count = 512,
        max_entries: Count = 32,
        penalty: NonNegative = 0.1,
        response_limit: Count | None = 1000,
        provenance: bool = False,
    ) -> None:
        super().__init__(penalty, response_limit)
        self.provenance = Provenance(provenance, protocol)
        self.wording = WORDINGS[protocol](max_entries, response_limit)
        self.budget, self.max_entries = budget, max_entries

    def text(self, state: NotebookState) -> str:
        return "\n".join(f"{entry.number}. {entry.text}" for entry in state.entries)

    def prepare(self, state: NotebookState, rules: str, observation: str) -> Prepared:
        return Prepared(self.wording.inject(rules, [self._shown(entry) for entry in state.entries]), state)

    def update(self, state: NotebookState, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        """Operations, carried out one by one."""
        numbered = [(entry.number, self._shown(entry)) for entry in state.entries]
        answer = yield self.wording.ask(rules, episode, numbered, state.refused, self.budget)
        operations, reason = self.wording.read(answer.response)
        if reason:
            kept = replace(state, refused=(reason,))
            return ContextUpdate(state=kept, reward=-self.penalty, parsed=False, reason=reason)
        solved = None if episode.reward_hidden else episode.success
        now, refused = self._carried_out(state, operations, episode.position, tokens, solved)
        reward = -self.penalty * len(refused) / len(operations) if refused else 0.0
        return ContextUpdate(state=replace(now, refused=refused), reward=reward, parsed=True, reason="; ".join(refused))

    def _carried_out(
        self,
        state: NotebookState,
        operations: Sequence[Operation],
        position: int,
        tokens: TokenView,
        solved: bool | None = None,
    ) -> tuple[NotebookState, tuple[str, ...]]:
        """The state after these operations, and those that were refused, each with its reason."""
        entries = {entry.number: entry for entry in state.entries}
        refused: list[str] = []
        for operation in operations:
            new = Entry(operation.number, operation.text, position, solved, written=True)
            reason = self._refusal(entries, operation, new, tokens)
            if reason:
                refused.append(f"{self.wording.spelled(operation)}: {reason}")
            elif operation.kind is OperationKind.DELETE:
                del entries[operation.number]
            elif operation.kind is not OperationKind.KEEP:
                number = operation.number or next(n for n in range(1, self.max_entries + 1) if n not in entries)
                entries[number] = replace(new, number=number)
        return NotebookState(tuple(entries[number] for number in sorted(entries))), tuple(refused)

    def _shown(self, entry: Entry) -> str:
        """The entry's text, after where it comes from."""
        written = entry.written or entry.solved is not None
        return self.provenance.before(entry.text, entry.since if written else -1, entry.solved)

    def _refusal(self, entries: dict[int, Any], operation: Operation, new: Entry, tokens: TokenView) -> str:
        """Why the operation cannot be carried out, which would write the new entry; empty where it can."""
        if operation.malformed:
            return operation.malformed
        if operation.kind not in (OperationKind.ADD, OperationKind.KEEP) and operation.number not in entries:
            return f"there is no entry {operation.number}"
        if operation.kind not in (OperationKind.ADD, OperationKind.REPLACE):
            return ""
        if reason := fault(operation.text, tokens, self.wording.marks, "entry"):
            return reason
        if self.provenance.spelled_in(operation.text):
            return "the entry has a mark of the context's own"
        if operation.kind is OperationKind.ADD and len(entries) >= self.max_entries:
            return f"there are {self.max_entries} entries already; delete one first"
        others = sum(tokens.count(self._shown(one)) for number, one in entries.items() if number != operation.number)
        total = others + tokens.count(self._shown(new))
        if total > self.budget:
            return f"the entries would have {total} tokens of {self.budget}; delete or shorten one first"
        return ""
