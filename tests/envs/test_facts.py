"""Tables of facts: written, read back, contradicted, completed."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs import QuotingDials, TeacherDials
from cod_lightning.envs.facts import UNKNOWN, FactTable
from cod_lightning.envs.frozen_lake.policies import LakePlay
from cod_lightning.envs.frozen_lake.wording import CompactLake, NaturalLake
from cod_lightning.envs.players import Teacher
from cod_lightning.types import Message, Role
from tests.cases import each

TABLES = (CompactLake.facts, NaturalLake.facts, CompactLake(names_effects=False).facts)
SOME_FACTS = st.dictionaries(st.integers(1, 4), st.sampled_from(CompactLake.facts.values))
TRUTH = dict(enumerate(("up", "down", "left", "right"), start=1))


def filling(how):
    return LakePlay(CompactLake(3), QuotingDials(fills=how))


PLAY = filling("any")


def test_a_context_names_all_codes_in_order():
    compact, natural, moved = (table.write({3: "left", 1: "up"}) for table in TABLES)
    assert moved == compact
    assert compact == "1=up 2=? 3=left 4=?"
    assert natural.splitlines() == [
        "- Direction 1 leads up",
        "- Direction 2: unknown",
        "- Direction 3 leads left",
        "- Direction 4: unknown",
    ]


@pytest.mark.parametrize("table", TABLES)
@given(facts=SOME_FACTS, both_ways=st.booleans())
def test_a_written_context_reads_back(table: FactTable, facts, both_ways):
    assert table.parse(table.write(facts, both_ways=both_ways)) == facts


def test_two_cells_of_a_move_are_a_fact_that_overrules_the_context_one_off_the_edge_is_none_and_the_later_of_two_counts():
    stated = "- Direction 2: up\nDirection 2 took you, from row 0, column 0 to row 1, column 0."
    assert NaturalLake.facts.parse(stated) == {2: "down"}
    stated = "Direction 2 kept you at row 0, column 0; maybe that is the edge."
    assert NaturalLake.facts.parse(stated) == {}
    assert CompactLake.facts.parse("2=stay @(0,0)") == {}
    table = CompactLake.facts
    assert table.complete(table.parse("1=up 2=down 3=up")) == {2: "down", 3: "up"}
    assert table.complete(table.parse("1=up 3=left 1=left")) == {1: "left"}


@given(facts=SOME_FACTS)
def test_completed_facts_give_every_value_to_one_code(facts):
    completed = CompactLake.facts.complete(facts)
    assert len(set(completed.values())) == len(completed) != 3


def test_what_was_seen_overrules_the_context():
    said = [
        Message(Role.SYSTEM, "lake 1=up 2=left 3=? 4=?"),
        Message(Role.USER, "G(2,2) @(0,0)"),
        Message(Role.ASSISTANT, "up <answer>Direction_4</answer>"),
        Message(Role.USER, "4=up @(0,0)"),
    ]
    assert PLAY.known(said, trust_context=True) == {2: "left", 4: "up"}
    assert PLAY.known(said, trust_context=False) == {4: "up"}


@each("accuracy", [0.0, 0.5, 1.0])
def test_noisy_facts_are_right_as_often_as_the_dial_says_and_otherwise_uniform(accuracy):
    rng = random.Random(0)
    drawn = [PLAY.noisy(TRUTH, accuracy, rng) for _ in range(4000)]
    right = sum(facts[code] == TRUTH[code] for facts in drawn for code in TRUTH) / (4 * len(drawn))
    unknown = sum(facts[code] == UNKNOWN for facts in drawn for code in TRUTH) / (4 * len(drawn))
    assert right == pytest.approx(accuracy + (1 - accuracy) / 5, abs=0.02)
    assert unknown == pytest.approx((1 - accuracy) / 5, abs=0.02)


@given(facts=SOME_FACTS, seed=st.integers(0, 100))
def test_a_note_without_the_truth_can_still_be_about_what_was_stated(facts, seed):
    noted = filling("stated").noisy(facts, 0.0, random.Random(seed))
    assert {code for code, value in noted.items() if value != UNKNOWN} <= set(facts)


@given(facts=SOME_FACTS, seed=st.integers(0, 100))
def test_a_writer_that_seldom_notes_is_never_wrong(facts, seed):
    noted = filling("unknown").noisy(facts, 0.3, random.Random(seed))
    assert all(value in (UNKNOWN, facts.get(code)) for code, value in noted.items())


def test_what_is_noted_of_a_stated_code_says_nothing_of_its_value():
    drawn = [
        filling("stated").noisy({2: truth}, 0.0, random.Random(i))[2] for truth in ("up", "left") for i in range(2000)
    ]
    for value in (*CompactLake.facts.values, UNKNOWN):
        assert drawn[:2000].count(value) == drawn[2000:].count(value) == pytest.approx(400, abs=80)


def test_contexts_are_true_in_part_or_junk_or_none_in_the_shares_of_the_dials():
    rng, dials = random.Random(0), TeacherDials(context_true=0.5, context_junk=0.2, context_accuracy=1.0)
    teacher = Teacher(LakePlay(CompactLake(3), QuotingDials()), TRUTH, dials)
    drawn = [teacher.context(rng) for _ in range(4000)]
    assert drawn.count("") / 4000 == pytest.approx(0.3, abs=0.03)
    assert drawn.count(CompactLake.facts.write(TRUTH)) / 4000 == pytest.approx(0.5 + 0.2 / 256, abs=0.03)


@each(("infers", "expected"), [(True, [1, 4, 6, 0, 5]), (False, [1, 4, 6, 4, 1])])
def test_a_true_context_with_gaps_holds_what_is_left_and_what_a_player_concludes_from_it(infers, expected):
    dials = QuotingDials(context_accuracy=1.0, context_true=1.0, context_junk=0.0, context_gaps=0.5, infers=infers)
    teacher = Teacher(LakePlay(CompactLake(3), dials), TRUTH, dials)
    rng = random.Random(0)
    known = [CompactLake.facts.parse(teacher.context(rng)) for _ in range(2000)]
    assert all(facts.items() <= TRUTH.items() for facts in known)
    shares = [sum(len(facts) == count for facts in known) / len(known) for count in range(5)]
    assert shares == pytest.approx([count / 16 for count in expected], abs=0.04)


@each(("infers", "expected"), [(True, "2=up 4=down 1=left 3=right"), (False, "2=up 4=down 1=left")])
def test_the_last_fact_is_concluded_by_players_and_notes_that_infer(infers, expected):
    play = LakePlay(CompactLake(3), QuotingDials(infers=infers))
    messages = [
        Message(Role.SYSTEM, "2=up"),
        Message(Role.USER, "O(0,1) G(2,2) @(1,1)"),
        Message(Role.USER, "4=down 1=left"),
    ]
    stated = CompactLake.facts.parse(expected)
    assert play.known(messages, trust_context=True) == play.recorded(messages) == stated
