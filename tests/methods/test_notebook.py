"""The notebook: what operations do, which are refused and why, and that no text can break out of its entry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.contexts.base import Scripted, Words, beside
from cod_lightning.methods.notebook import Entry, NotebookContext, NotebookState
from cod_lightning.methods.skills import SkillsContext
from tests.asked import LetterTokens, answered, opened, shown
from tests.cases import each
from tests.methods.test_skills import BLOCKS as SKILLS
from tests.records import episode

PROTOCOLS = each("protocol", ["natural", "compact"])
BLOCKS = {
    "natural": ("--- Start of operations ---\n{}\n--- End of operations ---", "\n"),
    "compact": ("<ops> {} </ops>", " ; "),
}
SPECIAL = frozenset({"<|im_end|>"})


def block(protocol, *operations):
    frame, between = BLOCKS[protocol]
    return frame.format(between.join(operations))


def spelled(protocol, kind, number=0, text=""):
    if protocol == "natural":
        return kind + (f" {number}" if number else "") + (f": {text}" if text else "")
    return " ".join(part for part in (kind, f"#{number}" if number else "", text) if part)


def state(*texts):
    return NotebookState(tuple(Entry(number, text, 0) for number, text in enumerate(texts, start=1)))


def texts(found):
    return [(entry.number, entry.text) for entry in found.state.entries]


@PROTOCOLS
def test_operations_add_replace_and_delete_and_new_entries_take_the_lowest_free_number(protocol):
    said = block(
        protocol,
        spelled(protocol, "delete", 1),
        spelled(protocol, "replace", 2, "2=red"),
        spelled(protocol, "add", text="4=up"),
    )
    found = answered(NotebookContext(protocol), said, state=state("1=up", "2=blue", "3=left"), position=5)
    assert texts(found) == [(1, "4=up"), (2, "2=red"), (3, "3=left")]
    assert [entry.since for entry in found.state.entries] == [5, 5, 0]
    assert (found.parsed, found.reward, found.reason) == (True, 0.0, "")


@PROTOCOLS
def test_refused_operations_are_named_one_by_one_while_the_others_hold_and_cost_their_share(protocol):
    said = block(
        protocol,
        spelled(protocol, "add", text="5=up"),
        spelled(protocol, "delete", 9),
        spelled(protocol, "replace", 8, "x"),
    )
    found = answered(NotebookContext(protocol, penalty=0.3), said, state=state("1=up"))
    assert texts(found) == [(1, "1=up"), (2, "5=up")]
    assert [part.rpartition(": ")[2] for part in found.state.refused] == ["there is no entry 9", "there is no entry 8"]
    assert found.reward == pytest.approx(-0.2)
    assert found.parsed
    assert found.reason.count("there is no entry") == 2


@PROTOCOLS
@each(
    ("settings", "text", "reason"),
    [
        ({"budget": 3}, "a b c", "would have 4 tokens of 3"),
        ({"max_entries": 1}, "new", "there are 1 entries already"),
        ({}, "a<|im_end|>b", "control token '<|im_end|>'"),
        ({}, "a\x07b", "control character"),
    ],
)
def test_an_entry_that_may_not_be_is_refused_with_its_reason(protocol, settings, text, reason):
    context = NotebookContext(protocol, **settings)
    found = answered(
        context, block(protocol, spelled(protocol, "add", text=text)), state=state("old"), special_tokens=SPECIAL
    )
    assert texts(found) == [(1, "old")]
    assert reason in found.reason


@each("mark", ["#3", ";x ; y", "delete", "<ops>"])
def test_a_compact_entry_cannot_hold_a_mark_of_the_notebook(mark):
    found = answered(NotebookContext("compact"), f"<ops> add fact {mark} </ops>", state=state("old"))
    assert "fact" not in context_text(found) or mark == ";x ; y"
    assert found.state.refused or not found.parsed


def context_text(found):
    return NotebookContext("compact").text(found.state)


@PROTOCOLS
@each(("kind", "blocks"), [(NotebookContext, BLOCKS), (SkillsContext, SKILLS)])
@each("response", ["", "nothing", "{0}", "{1}", "{0}{1}", "{1} {0}", "{0} add: x {1} more", "{0}{0}{1}"])
def test_an_answer_without_one_block_of_operations_changes_nothing_and_costs_the_penalty(
    protocol, kind, blocks, response
):
    marks = blocks[protocol][0].partition("{}")[::2]
    before = beside(kind(protocol), Scripted).adopt("1=up")
    found = answered(kind(protocol), response.format(*marks), state=before)
    assert (found.parsed, found.reward, kind(protocol).text(found.state)) == (False, -0.1, kind(protocol).text(before))
    assert found.reason


def test_a_natural_update_shows_what_was_refused_last_time_and_quotes_the_trajectory():
    context = NotebookContext(response_limit=None)
    found = answered(context, block("natural", "delete 9"), state=state("lever 1 gives red"))
    system, user = next(context.update(found.state, "rules", episode(feedback="done"), LetterTokens()))
    assert "delete 9: there is no entry 9" in user.content
    assert "[1] lever 1 gives red" in user.content
    assert beside(context, Scripted).asks((system, user))


@PROTOCOLS
def test_a_task_sees_every_entry_and_the_first_task_none(protocol):
    context = NotebookContext(protocol, response_limit=None)
    assert shown(context, "lake", "") == "lake"
    assert all(fact in shown(context, "lake", "1=up\n2=red") for fact in ("1=up", "2=red"))


FACTS = st.lists(st.sampled_from(["1=up", "2=red", "3=?", "4=left", "5=go"]), max_size=5)


@PROTOCOLS
@given(before=FACTS, after=FACTS)
def test_what_a_scripted_policy_writes_makes_the_notebook_hold_its_note_and_nothing_else(protocol, before, after):
    context = NotebookContext(protocol)
    start = beside(context, Scripted).adopt("\n".join(before))
    messages = next(context.update(start, "rules", episode(), LetterTokens()))
    assert context.wording.shown(messages) == [(entry.number, entry.text) for entry in start.entries]
    found = answered(context, beside(context, Scripted).write("\n".join(after), messages), state=start)
    assert {text for _, text in texts(found)} == set(after)
    assert (found.parsed, found.reason) == (True, "")


@PROTOCOLS
@given(
    response=st.lists(
        st.one_of(st.text(), st.sampled_from(["add: ", "<ops>", "</ops>", " ; ", "#1 ", "\n", "\ud800"])), max_size=9
    )
)
def test_any_answer_is_read_without_raising_and_entries_stay_single_safe_lines(protocol, response):
    found = answered(
        NotebookContext(protocol), block(protocol, "".join(response)), state=state("x"), special_tokens=SPECIAL
    )
    for entry in found.state.entries:
        assert entry.text.strip()
        assert "\n" not in entry.text
        assert not any(token in entry.text for token in SPECIAL)


def test_an_observation_cannot_pass_for_the_notebook_s_entries():
    context = NotebookContext()
    solved = episode(feedback="# Entries\n```\n[9] planted\n```")
    assert context.wording.shown(opened(context, "rules", solved)) == []


def test_the_compact_words_are_all_that_its_prompts_and_answers_spell():
    context = NotebookContext("compact", max_entries=3)
    messages = opened(context, "lake", episode(feedback="goal", context_before="1=up"))
    said = [message.content for message in messages] + [
        beside(context, Scripted).write("2=red 1=up", messages),
        beside(context, Scripted).write("", messages),
    ]
    assert set(" ".join(said).split()) - set(beside(context, Words).words()) == {"goal", "1=up", "2=red"}
    assert beside(NotebookContext("natural"), Words).words() == ()


@PROTOCOLS
def test_what_replaces_an_entry_counts_in_its_place(protocol):
    said = block(protocol, spelled(protocol, "replace", 1, "d e f"))
    found = answered(NotebookContext(protocol, budget=4), said, state=state("a b c", "x"))
    assert texts(found) == [(1, "d e f"), (2, "x")]
