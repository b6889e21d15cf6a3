"""Questions on disk keep the contract of worlds, and packs keep to their groups."""

import json
import random
from pathlib import Path

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import HiddenRules, Players, Reference, beside
from cod_lightning.envs.dataset import CodeTests, DatasetWorld, ExactMatch, NumericMatch, RegexMatch, Unscored
from cod_lightning.envs.question_world import AnswerKey
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.conformance import check_world
from cod_lightning.types import EpisodeStatus, Message, Role, Split
from tests.cases import each

ROWS = [
    {"prompt": f"wug({n}) of series {g}?", "answer": n * g + 1, "group": f"g{g}"} for g in range(40) for n in range(6)
]


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "wugs.jsonl", ROWS)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def world(path, **settings):
    return DatasetWorld(path, **{"group": "group", "scorer": NumericMatch(), **settings})


def test_no_rule_of_the_contract_is_broken_whatever_letters_questions_have(tmp_path):
    path = write(tmp_path / "wugs.jsonl", [{**row, "prompt": f"¿{row['prompt']}"} for row in ROWS])
    found = list(check_world(world(path), HintContext(), num_packs=8, pack_size=4))
    assert {verdict.rule: verdict.broken for verdict in found if verdict.broken} == {}
    assert {"random play is legal", "oracle play is legal"} <= {verdict.rule for verdict in found}


def test_packs_keep_to_a_group_without_repeats_and_a_group_to_a_split(path):
    env, seen = world(path), {}
    for split in Split:
        for index in range(40):
            pack = env.sample_pack(split=split, index=index, num_tasks=6)
            (series,) = {task.spec.question.split()[3] for task in pack.tasks}
            assert len({task.spec.question for task in pack.tasks}) == 6
            assert not any(task.repeat for task in pack.tasks)
            assert seen.setdefault(series, split) is split
    assert len(seen) > 20
    assert [task.repeat for task in env.sample_pack(split=Split.TRAIN, index=0, num_tasks=9).tasks[6:]] == [True] * 3


def test_three_groups_are_enough_for_three_splits_and_two_are_refused(tmp_path):
    for num in range(3, 12):
        env = world(write(tmp_path / f"{num}.jsonl", [row for row in ROWS if int(row["group"][1:]) < num]))
        seen = [env.sample_pack(split=split, index=0, num_tasks=6).tasks[0].spec.question.split()[3] for split in Split]
        assert len(set(seen)) == 3
    env = world(write(tmp_path / "two.jsonl", ROWS[:12]))
    with pytest.raises(ConfigError, match=r"data.env.path is 2 groups"):
        [env.sample_pack(split=split, index=0, num_tasks=2) for split in Split]


def test_equal_rows_and_their_order_change_no_pack_and_a_file_without_rows_is_refused(path, tmp_path):
    other = write(tmp_path / "other.jsonl", [*ROWS[::-1], *ROWS[:9]])
    one, two = world(path), world(other, world_name="wugs")
    asked = {"split": Split.TRAIN, "index": 3, "num_tasks": 4}
    assert one.sample_pack(**asked) == two.sample_pack(**asked)
    less = world(write(tmp_path / "wugs.jsonl", ROWS[1:]))
    assert less.sample_pack(**asked).world_seed == one.sample_pack(**asked).world_seed
    assert less.sample_pack(**asked).id != one.sample_pack(**asked).id, "it names other questions"
    with pytest.raises(ConfigError, match=r"none\.jsonl; expected a file with at least one row"):
        world(write(Path(path).with_name("none.jsonl"), []))


def test_an_answer_is_graded_and_the_feedback_names_the_right_one_or_not(path):
    for feedback, last in (("answer", "That is wrong. A right answer is 1"), ("verdict", "That is wrong.")):
        env = world(path, feedback=feedback, max_turns=2)
        task = next(
            t
            for i in range(99)
            for t in env.sample_pack(split=Split.TRAIN, index=i, num_tasks=6).tasks
            if t.spec.key == '"1"'
        )
        assert env.reset(options={"task": task}) == (task.spec.question, {})
        assert env.step("<answer>2</answer>") == ("That is wrong. Answers left: 1.", 0.0, False, False, {})
        assert env.step("I guess <answer>3.0</answer>") == (last, 0.0, True, False, {})
        assert (env.success, env.status) == (False, EpisodeStatus.COMPLETED)
        env.reset(options={"task": task})
        assert env.step("<answer>1.0</answer>") == ("That is right.", 1.0, True, False, {})
        assert env.success
        env.reset(options={"task": task})
        assert "'many' is not a number. The task is over." in env.step("<answer>many</answer>")[0]
        assert env.status is EpisodeStatus.MALFORMED


def test_scorers_without_a_right_answer_have_no_references_and_programs_are_graded_in_a_thread(tmp_path):
    rows = [{"prompt": f"Double it, {n}.", "answer": [{"call": "f(2)", "output": 4}]} for n in range(30)]
    env = DatasetWorld(write(tmp_path / "code.jsonl", rows), scorer=CodeTests(), feedback="answer")
    assert env.traits.blocking
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    with pytest.raises(NotImplementedError):
        beside(env, Players).reference(Reference.ORACLE, pack)
    env.reset(options={"task": pack.tasks[0]})
    assert env.step("<answer>f = lambda x: x</answer>")[0] == "That is wrong. Test 1 of 1 failed: f(2) gave '2'."


@each(
    ("row", "settings", "complaint"),
    [
        ({"prompt": "q", "group": 1}, {}, r"rows\.jsonl:2.*'answer', the column of data\.env\.answer"),
        ({"prompt": "q", "answer": 1}, {}, r"rows\.jsonl:2.*'group', the column of data\.env\.group"),
        ({"prompt": 3, "answer": 1, "group": 1}, {}, r"rows\.jsonl:2.*'3', not a text"),
        ({"prompt": "q", "answer": "one", "group": 1}, {}, r"rows\.jsonl:2.*NumericMatch can grade.*'one'"),
        ({"prompt": "q", "answer": "(", "group": 1}, {"scorer": RegexMatch()}, r"rows\.jsonl:2.*RegexMatch"),
        ({"prompt": "\ud800", "answer": 1, "group": 1}, {}, r"rows\.jsonl:2.*surrogates"),
        ({"prompt": "p", "answer": float("nan"), "group": 1}, {"scorer": ExactMatch()}, r"a value of 'answer'"),
        ({"prompt": "p", "answer": 1, "group": float("nan")}, {}, r"a value of 'group'"),
        ({"prompt": "p", "answer": 1, "group": float("inf")}, {}, r"rows\.jsonl:2; expected a group that is"),
        ({"prompt": "p", "answer": 1, "group": 1.0}, {}, r"one spelling of a group; it is 1\.0 here and 1 above"),
        ({"prompt": "p", "answer": 1, "group": " 1"}, {}, r"one spelling of a group"),
        ({"prompt": "q", "answer": 2, "group": 1}, {}, r"rows\.jsonl:2; expected the answer of .*rows\.jsonl:1"),
        (
            {"prompt": "p", "answer": "(" * 4000 + ")" * 4000, "group": 1},
            {"scorer": RegexMatch()},
            r"RegexMatch.*recursion",
        ),
        (
            {"prompt": "p", "answer": [{"call": "-" * 200_000 + "1", "output": 1}], "group": 1},
            {"scorer": CodeTests()},
            "CodeTests",
        ),
    ],
)
def test_a_row_that_cannot_be_asked_is_named_with_file_line_key_and_remedy(tmp_path, row, settings, complaint):
    first = [{"call": "f(1)", "output": 1}] if isinstance(row.get("answer"), list) else "1"
    path = write(tmp_path / "rows.jsonl", [{"prompt": "q", "answer": first, "group": 1}, row])
    with pytest.raises(ConfigError, match=complaint):
        world(path, **settings)


def test_without_groups_a_question_belongs_to_one_split_and_asked_again_it_is_a_repeat(tmp_path):
    rows = [{"prompt": f"Say {n % 40}.", "answer": f"{n}|{n % 40}"} for n in range(80)]  # each twice, by other rules
    env = DatasetWorld(write(tmp_path / "said.jsonl", rows), scorer=RegexMatch())
    seen = {}
    for split in Split:
        for index in range(60):
            tasks = env.sample_pack(split=split, index=index, num_tasks=6).tasks
            asked = [task.spec.question for task in tasks]
            assert [task.repeat for task in tasks] == [one in asked[:n] for n, one in enumerate(asked)]
            assert {seen.setdefault(one, split) for one in asked} == {split}
    assert len(seen) == 40


def test_packs_of_a_group_hide_the_same(path):
    env, found = world(path), {}
    for pack in (env.sample_pack(split=Split.TEST, index=index, num_tasks=2) for index in range(60)):
        rule = beside(env, HiddenRules).hidden_rule(pack)
        found.setdefault(rule, set()).update(task.spec.question.split()[3] for task in pack.tasks)
    assert [len(series) for series in found.values()] == [1] * len(set.union(*found.values()))
    plain = world(path, group=None)
    pack = plain.sample_pack(split=Split.TEST, index=0, num_tasks=2)
    assert beside(plain, HiddenRules).hidden_rule(pack) == pack.id


def test_the_oracle_answers_also_where_something_stands_above_the_question():
    oracle = AnswerKey({"2?": "two", "What is 2?": "too"})
    for question, answer in (("2?", "two"), ("Be quick.\n\nWhat is 2?", "too"), ("Be quick.\n\n2?", "two")):
        messages = [Message(Role.SYSTEM, "What is 2?"), Message(Role.USER, question)]
        assert oracle.act(messages, random.Random(0)) == f"<answer>{answer}</answer>"


def test_the_judge_reads_the_right_answer_where_the_world_grades_nothing(path):
    env = world(path, scorer=Unscored())
    task = env.sample_pack(split=Split.TEST, index=0, num_tasks=1).tasks[0]
    env.reset(options={"task": task})
    feedback, reward, *_ = env.step("<answer>anything</answer>")
    assert (feedback, reward) == (f"Your answer is taken down. A right answer is {json.loads(task.spec.key)}", 0.0)
