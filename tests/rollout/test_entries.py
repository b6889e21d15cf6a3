"""What an episode had to do with the entries of a context: every mechanism's, whatever else their lines say."""

from typing import Any

import pytest
from msgspec import structs

from cod_lightning.contexts import CheckedContext, HintContext, StackedContext
from cod_lightning.contexts.base import ContextEntry, Entries, InTask, Scripted, TextState, beside
from cod_lightning.contexts.hint import HintEntries
from cod_lightning.errors import ContextFailure
from cod_lightning.methods.acts import ActsContext
from cod_lightning.methods.compacting import CompactingContext
from cod_lightning.methods.constant_state import ConstantStateContext
from cod_lightning.methods.episodes import EpisodesContext
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.methods.skills import SkillsContext
from cod_lightning.methods.transcript import TranscriptContext
from cod_lightning.rollout.byte_chat import byte_chat
from cod_lightning.rollout.lifecycle import entry_events
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus
from tests.asked import answered
from tests.cases import each
from tests.lived_tasks import solved
from tests.records import episode

TOKENS = byte_chat()
ALL = (
    HintContext(), NotebookContext(), SkillsContext(), EpisodesContext(), TranscriptContext(), ConstantStateContext(),
    ActsContext(), CheckedContext(NotebookContext()), CompactingContext(SkillsContext()),
    StackedContext([SkillsContext(), HintContext()]),
)  # fmt: skip


def played(context: Any, state: Any, task: str, reward: float, *responses: str) -> tuple[Any, list[tuple[str, ...]]]:
    """The state after a task, and the task's events."""
    before, state = state, context.prepare(state, "rules", task).state
    for response in responses:
        found = beside(context, InTask).on_turn(state, response, TOKENS)
        state = state if found is None else found.state
    ended = solved(task, reward=reward, feedback=f"end of {task}")
    after = context.feedback(state, ended)
    return after, events_of(context, structs.replace(ended, state_before=before, state_after=after))


def rewritten(context: Any, state: Any, answer: str) -> tuple[Any, list[tuple[str, ...]]]:
    """The state after an update, and its events."""
    after = answered(context, answer, state=state).state
    update = episode(kind=EpisodeKind.UPDATE, reward=0.0, state_before=state, state_after=after)
    return update.state_after, events_of(context, update)


def events_of(context: Any, episode: Episode, *, known: bool = True, shown: bool = True) -> list[tuple[str, ...]]:
    events = entry_events(context, episode, known=known, shown=shown)
    return [tuple(part for part in (event.kind.value, event.key, event.text) if part) for event in events]


def test_a_record_whose_worth_changed_is_the_one_that_came_before_and_says_why_it_went() -> None:
    context = EpisodesContext(capacity=2, most=1)
    state, events = played(context, context.empty(), "red", 1.0)
    assert [event[:2] for event in events] == [("came", "task 0")]
    state, events = played(context, state, "blue", 0.0)
    assert [event[:2] for event in events] == [("shown", "task 0"), ("came", "task 1")]
    assert state.worth[0] != 0.5
    _, events = played(context, state, "blue again", 0.0)
    assert events[0] == ("shown", "task 1")
    assert events[-1] == ("gone", "task 0", "over the capacity of 2 records; worth least, 0.35")


def test_of_skills_the_chosen_one_is_shown_and_a_removal_has_its_reason() -> None:
    context = SkillsContext(max_skills=2)
    written = "--- Start of skills ---\n{}\n--- End of skills ---"
    library = "skill one | red | pull\nskill two | blue | push"
    state, events = rewritten(context, context.empty(), written.format(library))
    assert events == [("came", "one", "when red: pull"), ("came", "two", "when blue: push")]
    state, events = played(context, state, "task", 1.0, "use one")
    assert events == [("shown", "one")]
    events = rewritten(context, state, written.format("skill three | green | wait"))[1]
    assert events == [("came", "three", "when green: wait"), ("gone", "one", "made room: mean reward 1.00 in 1 tasks")]
    for _ in range(3):
        state, events = played(context, state, "task", 0.0, "use two")
    assert events == [("shown", "two"), ("gone", "two", "mean reward 0.00 in 3 tasks")]
    assert played(context, state, "task", 0.0)[1] == []


def test_entries_of_a_notebook_keep_their_number_when_they_are_replaced() -> None:
    context = NotebookContext("compact")
    state, events = rewritten(context, context.empty(), "<ops> add a ; add b </ops>")
    assert events == [("came", "1", "a"), ("came", "2", "b")]
    state, events = rewritten(context, state, "<ops> replace #1 c ; delete #2 </ops>")
    assert events == [("changed", "1", "c"), ("gone", "2")]
    assert played(context, state, "task", 1.0)[1] == [("shown", "1")]


def test_a_transcript_says_what_its_budget_cost() -> None:
    context = TranscriptContext("compact", budget=10)
    state, _ = played(context, context.empty(), "a b", 1.0)
    state, events = played(context, state, "c d", 1.0)
    assert [event[:2] for event in events] == [("shown", "task 0"), ("came", "task 1"), ("gone", "task 0")]
    assert "over the budget of 10 tokens" in events[-1][2]
    events = played(context, state, "word " * 20, 1.0)[1]
    assert events[0] == ("shown", "task 1")
    assert events[-1] == ("gone", "task 2", "alone over the budget of 10 tokens")


def test_what_is_one_text_is_one_entry_that_changes() -> None:
    context = HintContext("compact")
    state, events = rewritten(context, context.empty(), beside(context, Scripted).write("1=up 2=down", []))
    assert events == [("came", "hint", "1=up 2=down")]
    assert rewritten(context, state, beside(context, Scripted).write("3=left", []))[1] == [
        ("changed", "hint", "3=left")
    ]
    kept = ConstantStateContext("compact")
    first = f"{beside(kept, Scripted).write('1=up', [])} go"
    assert played(kept, kept.empty(), "task", 1.0, first)[1] == [("came", "state", "1=up")]


def test_the_parts_of_a_stack_have_entries_of_their_own() -> None:
    context = StackedContext([EpisodesContext("compact"), HintContext("compact")])
    state = beside(context, Scripted).adopt("up")
    events = played(context, state, "task", 1.0)[1]
    assert events[:2] == [("shown", "EpisodesContext note 1"), ("shown", "HintContext hint")]
    assert events[2][:2] == ("came", "EpisodesContext task 0")


@each("context", ALL)
def test_all_entries_of_a_note_are_named_where_nothing_is_known_of_them_and_none_is_new(context: Any) -> None:
    state = beside(context, Scripted).adopt("alpha=1\nbeta=2")
    episode = structs.replace(solved("task"), state_before=state, state_after=state)
    events = events_of(context, episode, known=False, shown=False)
    assert events
    assert {kind for kind, *_ in events} == {"held"}
    assert len({key for _, key, *_ in events}) == len(events)
    assert all(text in " ".join(event[-1] for event in events) for text in ("alpha=1", "beta=2"))
    assert events_of(context, structs.replace(episode, status=EpisodeStatus.FAILED, reward=None, success=None)) == []


def test_a_mechanism_that_says_nothing_of_entries_has_its_lines_for_entries() -> None:
    class Plain(HintContext):
        companions = (Entries, *HintContext.companions)

    episode = structs.replace(solved("task"), state_before=TextState("a\nb"), state_after=TextState("a\nc"))
    assert events_of(Plain(), episode) == [("shown", "a"), ("came", "c", "c"), ("gone", "b")]


def test_entries_that_are_no_texts_cost_the_lifecycle() -> None:
    class NumberedEntries(HintEntries):
        def entries(self, state: TextState) -> tuple[ContextEntry, ...]:
            return (ContextEntry(1, "a"),)  # pyright: ignore[reportArgumentType]

    class Numbered(HintContext):
        companions = (NumberedEntries, *HintContext.companions)

    with pytest.raises(ContextFailure, match="Numbered showed a int, not a string"):
        events_of(Numbered(), structs.replace(solved("task"), state_before=TextState(), state_after=TextState()))
