"""Compaction: past its budget a task is summarised by the policy and goes on from the summary, within bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Budget, InTask, Scripted, Stored, Words
from cod_lightning.engines.base import Request
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.errors import ConfigError
from cod_lightning.methods.compacting import Compacted, CompactingContext
from cod_lightning.methods.skills import SkillsContext
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.segments import count_drift, segments_of
from cod_lightning.types import EpisodeStatus, Message, Role
from tests.asked import LetterTokens
from tests.cases import each
from tests.stubs import FunctionEngine, PlainContext, WordWorld
from tests.word_play import play

PROTOCOLS = each("protocol", ["natural", "compact"])
TOKENS = LetterTokens({"<|im_end|>"})
LONG = (
    Message(Role.SYSTEM, "lake"),
    Message(Role.USER, "first"),
    Message(Role.ASSISTANT, "a b c d"),
    Message(Role.USER, "latest"),
)


def compacting(protocol="compact", **settings):
    return CompactingContext(HintContext(protocol), protocol, **({"budget": 4, "summary_budget": 2} | settings))


@PROTOCOLS
def test_past_the_budget_a_summary_is_asked_for_and_replaces_the_history(protocol):
    context = compacting(protocol)
    state = context.prepare(beside(context, Scripted).adopt("1=up"), "lake", "first").state
    asking = beside(context, InTask).before_turn(state, "lake", LONG, TOKENS)
    assert asking.messages[:-1] == LONG[:-1]
    assert asking.messages[-1].content == "latest" + context.wording.request
    found = beside(context, InTask).on_turn(asking.state, "2=down", TOKENS)
    assert (found.reply, found.state.summary) == ("", "2=down")
    said = (*asking.messages, Message(Role.ASSISTANT, "2=down"), Message(Role.USER, ""))
    resumed = beside(context, InTask).before_turn(found.state, "lake", said, TOKENS)
    system, user = resumed.messages
    assert "2=down" in system.content
    assert "1=up" in system.content
    assert "first" in user.content
    assert "latest" in user.content
    assert context.wording.request not in user.content
    assert (
        beside(context, InTask).before_turn(resumed.state, "lake", (*resumed.messages, *LONG[2:3], LONG[3]), TOKENS)
        is not None
    )


@PROTOCOLS
def test_below_the_budget_the_task_is_the_inner_mechanism_s_alone(protocol):
    context = compacting(protocol, budget=100)
    state = context.prepare(context.empty(), "lake", "first").state
    assert beside(context, InTask).before_turn(state, "lake", LONG, TOKENS) is None
    assert beside(context, InTask).on_turn(state, "an answer", TOKENS) is None


@each("summary", ["", "  ", "a b c", "<|im_end|>"])
def test_a_summary_that_may_not_be_is_refused_and_the_one_before_stays(summary):
    context = compacting()
    asked = Compacted(context.inside.empty(), "first", "2=down", asked=True)
    found = beside(context, InTask).on_turn(asked, summary, TOKENS)
    assert found.state.summary == "2=down"
    assert found.state.answered


def test_a_policy_that_compacts_for_ever_ends_with_its_task():
    """Each response is longer than the budget, so that a summary is asked for after every turn."""

    class WordyWords(Words):
        def words(self):
            return ("summary",)

    class Wordy(PlainContext):
        companions = (WordyWords, *PlainContext.companions)

    class Endless(WordWorld):
        def step(self, action):
            return "w2", 0.0, False, False, {}

    world = Endless()
    world.max_turns = 1000
    mechanism = CompactingContext(Wordy(), "compact", budget=2, summary_budget=1)
    chat = Chat(TinyPolicy().tokenizer(beside(world, Vocabulary).words() + beside(mechanism, Words).words()))
    said = (*chat.encode("w1 w1 w1"), chat.end_of_turn)

    def answer(request: Request):
        return (*chat.encode("w3"), chat.end_of_turn) if "summary" in request.messages[-1].content else said

    groups = play(FunctionEngine(answer), world, mechanism, num_tasks=1, chat=chat, window=600, max_new_tokens=5)
    (episode,) = groups[0].lifecycles[0].episodes
    assert episode.status is EpisodeStatus.TRUNCATED
    assert sum(not turn.extends for turn in episode.turns) > 10
    assert count_drift(groups) == 0
    assert sum(sum(row.action_mask) for row in segments_of(groups)) == episode.num_action_tokens


@given(st.lists(st.text(max_size=9), max_size=6))
def test_no_summary_breaks_its_bounds(pieces):
    context = compacting()
    found = beside(context, InTask).on_turn(
        Compacted(context.inside.empty(), "first", asked=True), " ".join(pieces), TOKENS
    )
    assert TOKENS.count(found.state.summary) <= 2


def test_an_agent_may_go_on_without_compaction():
    context = compacting()
    kept = beside(context, Stored).dump(Compacted(beside(context.inside, Scripted).adopt("1=up"), "first", "2=down"))
    assert beside(HintContext("compact"), Stored).load(kept) == beside(context.inside, Scripted).adopt("1=up")
    assert beside(context, Stored).load(kept) == Compacted(beside(context.inside, Scripted).adopt("1=up"))


def test_budgets_that_leave_no_room_for_a_summary_are_refused():
    with pytest.raises(ConfigError, match="summary_budget is 2"):
        beside(compacting(), Budget).check(64, 1)
    with pytest.raises(ConfigError, match="budget is 60"):
        beside(compacting(budget=60), Budget).check(64, 8)


@PROTOCOLS
def test_after_a_summary_a_skill_is_chosen_again_as_the_system_text_asks(protocol):
    skills = SkillsContext(protocol)
    context = CompactingContext(skills, protocol, budget=4, summary_budget=2)
    name = beside(skills, Scripted).adopt("1=up").skills[0].name
    state = context.prepare(beside(context, Scripted).adopt("1=up"), "lake", "first").state
    for _ in range(2):
        chosen = beside(context, InTask).on_turn(state, f"use {name}", TOKENS)
        assert "1=up" in chosen.reply
        given = (*LONG[:2], Message(Role.ASSISTANT, f"use {name}"), Message(Role.USER, f"{chosen.reply} a b c d"))
        begun = beside(context, InTask).before_turn(chosen.state, "lake", given, TOKENS)
        assert begun.messages == given, "no summary before the environment has had a turn"
        assert beside(context, InTask).on_turn(begun.state, "a b c d", TOKENS) is None
        asking = beside(context, InTask).before_turn(begun.state, "lake", LONG, TOKENS)
        found = beside(context, InTask).on_turn(asking.state, "2=down", TOKENS)
        said = (*asking.messages, Message(Role.ASSISTANT, "2=down"), Message(Role.USER, ""))
        resumed = beside(context, InTask).before_turn(found.state, "lake", said, TOKENS)
        assert list(skills.wording.offered(resumed.messages)) == [name]
        state = resumed.state
