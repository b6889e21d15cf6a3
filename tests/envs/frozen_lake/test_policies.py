"""Who plays the lake without a model."""

import random
from dataclasses import replace

import pytest

from cod_lightning.envs import QuotingDials
from cod_lightning.envs.answers import code_of
from cod_lightning.envs.base import HiddenRules, Players, Reference, beside
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.frozen_lake.lake import Lake, LakeTask, distances
from cod_lightning.envs.frozen_lake.policies import LakePlayer, ScriptedLakePolicy
from cod_lightning.envs.frozen_lake.wording import CompactLake, LakeWording
from cod_lightning.types import Message, Pack, Role, Split
from tests.cases import each
from tests.envs.scripted_life import by_position, live

KNOWN = "lake 1=up 2=down 3=left 4=right"
SMALL = {"size_min": 3, "size_max": 3, "protocol": "compact"}


def _teacher(**parameters):
    """Of a small lake."""
    env = FrozenLakeObscure(**SMALL | parameters)
    return beside(env, Players).demonstrator(env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1))


def _scripted(wording: LakeWording) -> ScriptedLakePolicy:
    return ScriptedLakePolicy(LakePlayer(wording=wording, max_turns=8, length_penalty=0.1))


def _answers(context: str, observation: str, *later: tuple[int, str], times: int = 60) -> set[int]:
    messages = [Message(Role.SYSTEM, context), Message(Role.USER, observation)]
    for code, text in later:
        messages += [Message(Role.ASSISTANT, f"up <answer>Direction_{code}</answer>"), Message(Role.USER, text)]
    policy = _scripted(CompactLake(3))
    return {code_of(policy.act(messages, random.Random(i)), "Direction", 4)[0] for i in range(times)}


@each(
    ("context", "observation", "later", "codes"),
    [
        # a known shortest step
        (KNOWN, "O(1,0) O(1,1) G(2,2) @(0,0)", [], {4}),
        (KNOWN, "G(2,2) @(0,0)", [], {2, 4}),
        # a known step before a try beside a hole, and a try in a corner, where a bump costs less than a step away
        ("lake 1=? 2=down 3=? 4=?", "O(0,1) G(2,2) @(0,0)", [], {2}),
        ("lake 1=? 2=down 3=? 4=?", "G(2,2) @(0,0)", [], {1, 3, 4}),
        # an unknown code where it must
        ("lake 1=up 2=? 3=? 4=?", "G(0,2) @(0,0)", [], {2, 3, 4}),
        # its eyes before the context, which is dropped where it was false
        ("lake 1=up 2=down 3=right 4=left", "G(0,2) @(0,0)", [(4, "4=right @(0,1)")], {4}),
        ("lake 1=right 2=left 3=up 4=down", "G(1,1) @(0,0)", [(4, "4=stay @(0,0)")], {1, 2, 3}),
        # what a bump shows: 3 is up, so that 4 is down where the rest is known
        ("lake", "O(1,0) O(1,2) G(1,1) @(0,1)", [(3, "3=stay @(0,1)")], {1, 2, 4}),
        ("lake 1=left 2=? 3=? 4=?", "G(2,0) @(0,0)", [(3, "3=stay @(0,0)")], {2, 4}),
        ("lake 1=left 2=right 3=? 4=?", "G(2,0) @(0,0)", [(3, "3=stay @(0,0)")], {4}),
        # a safe place to try codes, unless there is no hole to fear
        ("lake 1=? 2=? 3=up 4=?", "O(1,0) G(2,2) @(1,1)", [], {3}),
        ("lake 1=? 2=? 3=up 4=?", "G(2,2) @(1,1)", [], {1, 2, 4}),
    ],
)
def test_the_scripted_policy_takes_the_best_step_for_what_is_known(context, observation, later, codes):
    assert _answers(context, observation, *later) == codes


def test_it_notes_what_it_saw_and_drops_what_that_contradicts():
    policy = _scripted(CompactLake(3))

    def noted(old: str, feedback: str) -> str:
        return policy.note([Message(Role.SYSTEM, f"update {old}"), Message(Role.USER, feedback)], random.Random(0))

    assert noted("1=up 2=? 3=? 4=?", "hole 3=left") == "1=up 2=? 3=left 4=?"
    assert noted("1=up 2=down 3=? 4=?", "goal 3=left") == "1=up 2=down 3=left 4=right"
    assert noted("1=up 2=down 3=left 4=right", "hole 2=left") == "1=? 2=left 3=? 4=?"


def test_a_task_of_very_many_turns_is_played_too():
    env = FrozenLakeObscure(max_turns=500, length_penalty=0.5)
    assert max(by_position(env, Reference.SCRIPTED, 3)) <= 1
    policy = ScriptedLakePolicy(LakePlayer(wording=CompactLake(3), max_turns=500, length_penalty=0.5))
    messages = [Message(Role.SYSTEM, KNOWN), Message(Role.USER, "G(2,2) @(0,0)")]
    messages += [Message(Role.ASSISTANT, "up <answer>Direction_1</answer>"), Message(Role.USER, "1=stay @(0,0)")] * 300
    assert code_of(policy.act(messages, random.Random(0)), "Direction", 4)[0] in {2, 4}


@each("changes", [False, True])
def test_the_oracle_walks_shortest_paths(changes):
    env = FrozenLakeObscure()
    for index in range(10):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=8)
        pack = beside(env, HiddenRules).changed(pack, at=4, seed=0) if changes else pack
        lives = live(env, pack, Reference.ORACLE, index)
        paths = [distances(lake)[lake.find("S")] for lake in (Lake(task.spec.rows) for task in pack.tasks)]
        assert [lived.reward for lived in lives] == pytest.approx([1 - 0.1 * path / 8 for path in paths])


def test_the_oracle_plays_a_lake_that_has_two_mappings_by_what_both_allow_and_tries_a_code_where_neither_is_fatal():
    env, first, second = FrozenLakeObscure(**SMALL), ("down", "right", "up", "left"), ("down", "right", "left", "up")
    task = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks[0]

    def played(rows, *mappings):
        tasks = tuple(replace(task, spec=LakeTask(rows=rows, mapping=mapping)) for mapping in mappings)
        pack = Pack(id="0", split=Split.TRAIN, world_seed=0, tasks=tasks)
        oracle = beside(env, Players).reference(Reference.ORACLE, pack)
        return oracle, live(env, pack, oracle)

    oracle, lives = played(("SFF", "FFF", "FFG"), first, second)
    assert [lived.reward for lived in lives] == pytest.approx([0.95, 0.95])
    assert oracle.note([], random.Random(0)) == "1=down 2=right 3=? 4=?"
    _, lives = played(("FHF", "GSF", "FFF"), first, second, second, first)
    assert all(lived.success for lived in lives)


def test_a_teacher_that_does_not_follow_ignores_the_context():
    teacher = _teacher(teacher=QuotingDials(follow=0.0))
    messages = [Message(Role.SYSTEM, KNOWN), Message(Role.USER, "G(0,2) @(0,0)")]
    said = {code_of(teacher.act(messages, random.Random(i)), "Direction", 4)[0] for i in range(60)}
    assert said == {1, 2, 3, 4}


@each(("feedback", "moved"), [("effect", "2=right"), ("positions", "2:(0,0)>(0,1)")])
def test_a_teacher_that_quotes_says_what_its_last_move_meant(feedback, moved):
    teacher = _teacher(feedback=feedback, teacher=QuotingDials(quotes=True))
    first = [Message(Role.SYSTEM, "lake"), Message(Role.USER, "G(0,2) @(0,0)")]
    tried = teacher.act(first, random.Random(0)).split()
    assert tried[1] == f"{tried[2][-len('2</answer>')]}=?"
    later = [*first, Message(Role.ASSISTANT, " ".join(tried)), Message(Role.USER, f"{moved} @(0,1)")]
    assert teacher.act(later, random.Random(0)) == "right 2=right <answer>Direction_2</answer>"


LAKE = "Map:\n P \t _ \t _ \t\n {} \t _ \t _ \t\n _ \t _ \t G \t\nThe goal is at row {}, column 2 (counted from 0)."


@each(
    ("noted", "hole", "row", "compared", "wanted"),
    [
        ("- Direction 4 leads right", "_", 2, "row 0 2 down, column 0 2 right", "down, so down unknown Direction"),
        ("- Direction 4 leads down", "_", 2, "row 0 2 down, column 0 2 right", "down, so down Direction 4"),
        ("- Direction 4 leads right", "O", 2, "row 0 2 down, column 0 2 right", "right, so right Direction 4"),
        ("- Direction 4 leads right", "_", 0, "row 0 0 same, column 0 2 right", "right, so right Direction 4"),
    ],
)
def test_a_teacher_that_quotes_in_sentences_compares_cells_and_wants_the_first_way_that_leads_forward(
    noted, hole, row, compared, wanted
):
    teacher = _teacher(protocol="natural", teacher=QuotingDials(follow=1.0, quotes=True))
    shown = LAKE.format(hole, row)
    if row == 0:
        shown = shown.replace("P \t _ \t _", "P \t _ \t G").replace("_ \t _ \t G \t\nThe", "_ \t _ \t _ \t\nThe")
    said = {teacher.act([Message(Role.SYSTEM, noted), Message(Role.USER, shown)], random.Random(i)) for i in range(20)}
    assert all(one.startswith(f"I am in {compared}. I want to go {wanted}") for one in said)
    assert len(said) == (3 if "unknown" in wanted else 1)
