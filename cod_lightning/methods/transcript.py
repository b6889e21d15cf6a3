"""Everything so far, unedited, until a budget is full; then the oldest task goes first.

Source: the naive baseline of Continual Learning Bench (arXiv 2606.05661), where a model that sees its whole history gained more
from experience than memory systems did. Differs: a policy may be trained with it, a task is dropped whole, and the budget is
estimated, since no tokenizer is at hand after a task: four bytes a token in natural text, a word a token in the compact protocol.
"""

from typing import ClassVar, Literal

from msgspec import Struct

from cod_lightning.contexts.base import Budget, ContextEntry, Entries, Prepared
from cod_lightning.contexts.records import Record, RecordContext, RecordScripted
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Count
from cod_lightning.types import Episode

_ABOUT = "All that you were shown and answered in earlier tasks here, as far as there is room."


class TranscriptState(Struct, frozen=True):
    """Tasks from the oldest to the newest, each whole."""

    records: tuple[Record, ...] = ()
    num_tasks: int = 0
    """Tasks so far, those that are gone included."""
    gone: dict[str, str] = {}
    """Keys of records that the latest task had removed, its own included where it is too long, and why."""


class TranscriptBudget(Budget["TranscriptContext"]):
    """The room for the history."""

    def check(self, window: int, max_new_tokens: int) -> None:
        if self.of.budget >= window:
            expected = f"below model.policy.window={window}, which holds the rules, the task and its responses, too"
            raise ConfigError("data.context.budget", self.of.budget, expected, "Lower it, so that the task still fits.")


class TranscriptEntries(Entries["TranscriptContext"]):
    """The pieces of the history."""

    def entries(self, state: TranscriptState) -> tuple[ContextEntry, ...]:
        """Tasks, each shown whole."""
        kept = (ContextEntry(one.key, one.text) for one in state.records)
        return (*kept, *(ContextEntry(key, "", gone=why) for key, why in state.gone.items()))


class TranscriptScripted(RecordScripted["TranscriptContext"]):
    """How scripted policies write the history."""

    def adopt(self, note: str) -> TranscriptState:
        return TranscriptState(self.of._fitting(self.of.noted(note)))


class TranscriptContext(RecordContext):
    """The whole history, as far as a budget goes. There are no update episodes.

    Args:
        protocol: Wording for language models (natural) or for tiny policies (compact).
        budget: Most tokens of the history, about; beyond it the oldest tasks go. A task that exceeds it alone is not kept. It has
            to be below the policy's window, where the rules, the task and its responses need room, too.
    """

    companions = (TranscriptBudget, TranscriptEntries, TranscriptScripted, *RecordContext.companions)

    State: ClassVar[type[Struct]] = TranscriptState

    def __init__(self, protocol: Literal["natural", "compact"] = "natural", budget: Count = 4096) -> None:
        super().__init__(protocol)
        self.budget = budget

    def text(self, state: TranscriptState) -> str:
        return self.listed(state.records)

    def prepare(self, state: TranscriptState, rules: str, observation: str) -> Prepared:
        return Prepared(self.wording.inject(rules, state.records, _ABOUT), state)

    def feedback(self, state: TranscriptState, episode: Episode) -> TranscriptState:
        record = self.wording.record(episode, state.num_tasks, None)
        records, over = (*state.records, record), f"over the budget of {self.budget} tokens"
        if kept := self._fitting(records):
            gone = {one.key: f"{over} with the tasks after it" for one in records[: len(records) - len(kept)]}
        else:
            kept, gone = state.records, {record.key: f"alone {over}"}
        return TranscriptState(kept, state.num_tasks + 1, gone)

    def _fitting(self, records: tuple[Record, ...]) -> tuple[Record, ...]:
        """The newest records that fit into the budget together."""
        total, first = 0, len(records)
        while first:
            total += self.wording.size(self.wording.shown(records[first - 1]))
            if total > self.budget:
                break
            first -= 1
        return records[first:]
