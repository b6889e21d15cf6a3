"""Memory acts: carried out while a task is solved, budgeted, refused one by one, and gone from the dialogue afterwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.contexts.base import InTask
from cod_lightning.envs.base import beside
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.lifecycles import ConnectTheDots
from cod_lightning.methods.acts import ActsContext, ActsState
from cod_lightning.methods.notebook import Entry
from cod_lightning.rollout.segments import count_drift, segments_of
from cod_lightning.types import Message, Role, Split
from tests.asked import LetterTokens
from tests.cases import each
from tests.lived_tasks import profits
from tests.records import episode
from tests.word_play import scripted

PROTOCOLS = each("protocol", ["natural", "compact"])
TOKENS = LetterTokens({"<|im_end|>"})
MARKS = ("--- Start of memory act ---", "--- End of memory act ---", "<memory>", "</memory>")


def act(protocol, *operations):
    if protocol == "natural":
        return "\n".join(["--- Start of memory act ---", *operations, "--- End of memory act ---"])
    spelled = (one.replace(":", "").replace("delete ", "delete #") for one in operations)
    return f"<memory> {' ; '.join(spelled)} </memory>"


def begun(context, *texts):
    state = ActsState(tuple(Entry(n, text, 0) for n, text in enumerate(texts, start=1)))
    return context.prepare(state, "lake", "first").state


@PROTOCOLS
def test_an_act_is_carried_out_unseen_by_the_environment_and_leaves_the_dialogue(protocol):
    context = ActsContext(protocol)
    found = beside(context, InTask).on_turn(begun(context, "1=up"), act(protocol, "add: 2=down", "delete 1"), TOKENS)
    assert found.reply == ""
    assert [entry.text for entry in found.state.entries] == ["2=down"]
    said = [
        Message(Role.SYSTEM, "old"),
        Message(Role.USER, "first"),
        Message(Role.ASSISTANT, "act"),
        Message(Role.USER, ""),
    ]
    history = beside(context, InTask).before_turn(found.state, "lake", said, TOKENS)
    assert history.messages[1:] == (Message(Role.USER, "first"),)
    assert "2=down" in history.messages[0].content
    assert "1=up" not in history.messages[0].content
    assert beside(context, InTask).before_turn(history.state, "lake", said, TOKENS) is None


@PROTOCOLS
def test_what_cannot_be_carried_out_is_refused_on_its_own_and_costs_the_act(protocol):
    context = ActsContext(protocol, budget=2)
    operations = ("delete 7", "add: 2=down", "add: a b c")
    found = beside(context, InTask).on_turn(begun(context, "1=up"), act(protocol, *operations), TOKENS).state
    assert [entry.text for entry in found.entries] == ["1=up", "2=down"]
    assert len(found.refused) == 2
    assert "there is no entry 7" in found.refused[0]
    assert found.num_acts == 1
    unreadable = (
        beside(context, InTask).on_turn(begun(context, "1=up"), f"{act(protocol, 'keep')} and more", TOKENS).state
    )
    assert unreadable.num_acts == 1
    assert unreadable.refused
    assert [entry.text for entry in unreadable.entries] == ["1=up"]


@PROTOCOLS
def test_when_all_acts_are_spent_the_environment_sees_every_response(protocol):
    context = ActsContext(protocol, max_acts=2)
    state = begun(context)
    for _ in range(2):
        state = beside(context, InTask).on_turn(state, act(protocol, "keep"), TOKENS).state
    assert beside(context, InTask).on_turn(state, act(protocol, "add: 1=up"), TOKENS) is None
    assert beside(context, InTask).on_turn(begun(context), "an answer", TOKENS) is None


def test_the_next_task_has_all_its_acts_and_is_shown_the_feedback():
    context = ActsContext("compact", max_acts=2)
    spent = beside(context, InTask).on_turn(begun(context), act("compact", "add 1=up"), TOKENS).state
    after = context.feedback(spent, episode(feedback="goal 3=left"))
    assert (after.num_acts, after.position) == (0, 1)
    assert context.prepare(after, "lake", "second").system == "lake acts=2 goal 3=left #1 1=up"


@PROTOCOLS
@given(
    pieces=st.lists(
        st.one_of(
            st.text(max_size=9),
            st.sampled_from([*MARKS, "add: x", "add x", ";", "delete 1", "<|im_end|>", "\n"]),
        ),
        max_size=9,
    )
)
def test_any_response_is_read_without_raising_and_no_entry_breaks_its_bounds(protocol, pieces):
    context = ActsContext(protocol, budget=4, max_entries=2)
    found = beside(context, InTask).on_turn(begun(context, "x"), " ".join(pieces), TOKENS)
    entries = begun(context, "x").entries if found is None else found.state.entries
    assert len(entries) <= 2
    assert sum(TOKENS.count(entry.text) for entry in entries) <= 4
    assert not any(mark in entry.text for entry in entries for mark in (*MARKS, "<|im_end|>", "\n"))


@pytest.mark.parametrize("protocol", [pytest.param("natural", marks=pytest.mark.slow), "compact"])
def test_scripted_play_acts_and_profits_and_every_sampled_token_is_in_one_row(protocol):
    env = FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, protocol=protocol)
    context, program = ActsContext(protocol), ConnectTheDots(every=None)
    profits(env, context, program)
    groups = scripted(env, context, num_packs=2, num_tasks=4, split=Split.TEST, program=program)
    assert count_drift(groups) == 0
    episodes = [episode for group in groups for life in group.lifecycles for episode in life.episodes]
    rows = segments_of(groups)
    assert len(rows) > len(episodes)
    assert sum(sum(row.action_mask) for row in rows) == sum(episode.num_action_tokens for episode in episodes)
