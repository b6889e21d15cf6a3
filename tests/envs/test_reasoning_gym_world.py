"""reasoning-gym's questions as packs, scored by its own function."""

import copy
import json
import os
import random
import subprocess
import sys

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import HiddenRules, Variants, beside
from cod_lightning.envs.question_world import Grade, QuestionTask
from cod_lightning.envs.reasoning_gym_world import _GRADER, ReasoningGym
from cod_lightning.errors import ConfigError, GradingFailed
from cod_lightning.evaluation.conformance import check_world
from cod_lightning.sandbox.sandbox import Sandbox
from cod_lightning.types import EpisodeStatus, Split
from tests.cases import each

reasoning_gym = pytest.importorskip("reasoning_gym", reason="pip install -e '.[reasoning-gym]'")


@pytest.fixture(scope="module")
def arc():
    return ReasoningGym("arc_1d", group="task_name", num_questions=300)


def rules_of(env, pack):
    keys = [json.loads(task.spec.key) for task in pack.tasks]
    return {env._entry(key["level"], key["index"])["metadata"]["task_name"] for key in keys}


def test_no_rule_of_the_contract_is_broken(arc):
    found = list(check_world(arc, HintContext(), num_packs=3, pack_size=4))
    assert {verdict.rule: verdict.broken for verdict in found if verdict.broken} == {}
    oracle = next(verdict for verdict in found if verdict.rule.startswith("oracle"))
    assert oracle.remark == "success by position 1.00 1.00 1.00 1.00"


def test_a_pack_follows_one_rule_and_a_rule_belongs_to_one_split(arc):
    seen = {}
    for split in Split:
        for index in range(30):
            pack = arc.sample_pack(split=split, index=index, num_tasks=4)
            (rule,) = rules_of(arc, pack)
            assert seen.setdefault(rule, split) is split
            assert beside(arc, HiddenRules).hidden_rule(pack) == json.dumps(rule)
    assert set(seen.values()) == set(Split)


def test_the_reward_is_their_score(arc):
    dataset = reasoning_gym.create_dataset("arc_1d", seed=0, size=300)
    for index in range(20):
        (task,) = arc.sample_pack(split=Split.TRAIN, index=index, num_tasks=1).tasks
        entry = dataset[json.loads(task.spec.key)["index"]]
        assert entry["question"] == task.spec.question
        for answer in (entry["answer"], entry["answer"] + " 0", "7", "no"):
            arc.reset(options={"task": task})
            _, reward, terminated, _, _ = arc.step(f"<answer>{answer}</answer>")
            assert (reward, terminated) == (dataset.score_answer(answer, entry), True)
            assert arc.success == (reward == 1)


def test_levels_are_categories_and_a_pack_has_one():
    levels = [{"min_words": 2, "max_words": 2}, {"min_words": 9, "max_words": 9}]
    env = ReasoningGym("caesar_cipher", levels=levels, num_questions=60)
    assert beside(env, Variants).categories() == ("caesar_cipher-0", "caesar_cipher-1")
    for category, level in zip(beside(env, Variants).categories(), (0, 1), strict=True):
        pack = beside(env, Variants).of_category(category).sample_pack(split=Split.TEST, index=0, num_tasks=3)
        assert {json.loads(task.spec.key)["level"] for task in pack.tasks} == {level}
        assert pack.id != env.sample_pack(split=Split.TEST, index=0, num_tasks=3).id
    mixed = [env.sample_pack(split=Split.TRAIN, index=i, num_tasks=3) for i in range(20)]
    assert {len({json.loads(t.spec.key)["level"] for t in pack.tasks}) for pack in mixed} == {1}


@each("dataset", ["tower_of_hanoi", "coin_flip"])
def test_without_rules_a_question_that_is_generated_several_times_belongs_to_one_split(dataset):
    env, seen = ReasoningGym(dataset, levels=[{}, {}], num_questions=200), {}
    for split in Split:
        for index in range(60):
            for task in env.sample_pack(split=split, index=index, num_tasks=4).tasks:
                assert seen.setdefault(task.spec.question, split) is split
    assert len(seen) > 60


def test_every_process_draws_the_same_questions_also_of_datasets_that_go_by_the_order_of_sets():
    drawn = (
        "from cod_lightning.envs.reasoning_gym_world import ReasoningGym; from cod_lightning.types import Split; "
        "worlds = [ReasoningGym(name, num_questions=12) for name in ('word_ladder', 'list_functions')]; "
        "print('\\n', [world.sample_pack(split=Split.TRAIN, index=0, num_tasks=4) for world in worlds])"
    )
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        printed = subprocess.run(
            [sys.executable, "-c", drawn], env=environment, capture_output=True, text=True, check=True
        ).stdout
        found.add(printed.rstrip().rpartition("\n")[2])
    assert len(found) == 1
    assert "question" in found.pop()


def test_what_draws_other_packs_has_another_name(arc):
    others = [{"group": None}, {"num_questions": 301}, {"levels": [{"num_train": 1}]}]
    names = [
        ReasoningGym(**{"dataset": "arc_1d", "group": "task_name", "num_questions": 300} | one).name for one in others
    ]
    assert len({arc.name, *names}) == 4


def test_a_copy_draws_the_same_and_the_global_generator_stays(arc):
    random.seed(5)
    state = random.getstate()
    asked = {"split": Split.TEST, "index": 1, "num_tasks": 3}
    assert copy.deepcopy(arc).sample_pack(**asked) == arc.sample_pack(**asked)
    assert random.getstate() == state


def test_an_answer_at_which_their_scorer_raises_is_malformed():
    env = ReasoningGym("boxnet", num_questions=6)
    env.reset(seed=1)
    assert "boxnet cannot score it (TypeError). The task is over." in env.step("<answer>7</answer>")[0]
    assert env.status is EpisodeStatus.MALFORMED


EVALUATES = ["spiral_matrix", "binary_matrix", "string_insertion", "n_queens"]
FORMULAS = ["countdown", "puzzle24", "simple_integration", "intermediate_integration", "polynomial_multiplication"]
"""Datasets whose scorers run an answer as Python, by `eval` or by sympy."""
PATCH = "(lambda gym: [setattr(one, 'score_answer', lambda *a: 1.0) for one in vars(gym).values()])(__import__('reasoning_gym'))"


@pytest.fixture(scope="module")
def graded():
    """What a dataset makes of an answer to its first question; one process grades for all of them."""
    names = EVALUATES + FORMULAS
    grader = Sandbox(_GRADER, [[[name, "{}", 0, 3] for name in names]], path=sys.path, time_s=10.0, memory_mb=1024)

    def grade(dataset, answer):
        env = ReasoningGym(dataset, levels=[{}] * len(names), num_questions=3)
        env._sandbox = grader
        task = QuestionTask(question="", key=json.dumps({"level": names.index(dataset), "index": 0}))
        return env.grade(env.right_answer(task) if answer is None else answer, task)

    return grade


@each("dataset", EVALUATES + FORMULAS)
def test_an_answer_that_is_a_program_is_refused_before_it_runs(dataset, graded, tmp_path):
    left = tmp_path / "left"
    programs = [
        f"__import__('os').system('touch {left}')",
        f"open({str(left)!r}, 'w')",
        "__import__('os')._exit(0)",
        PATCH,
        "[c for c in ().__class__.__base__.__subclasses__()]",
        "().__class__",
        "(lambda: 1)()",
    ]
    if dataset in FORMULAS:
        programs += [f"Symbol('x') + sympify({programs[0]!r})", f"Integer({programs[0]!r})", "lambdify(1, 2)"]
    for program in programs:
        grade = graded(dataset, program)
        assert grade.score <= 0.05  # what the scorer gives for an answer that it cannot read
    assert graded(dataset, programs[0])[1:3] == ("it is a program, not a value or a formula", True)
    assert not left.exists()
    assert graded(dataset, None).score == 1


@each("name", ["oracle_answer", "[oracle_answer]", "entry", "self"])
def test_an_answer_cannot_name_what_the_scorer_knows(name, graded):
    assert graded("spiral_matrix", name).malformed
    assert graded("spiral_matrix", "nothing_of_this_name") == Grade(0.0)


def test_an_answer_that_takes_too_much_is_not_graded_and_the_next_one_is(monkeypatch):
    monkeypatch.setattr("cod_lightning.envs.reasoning_gym_world._GRADING_S", 1.0)
    env = ReasoningGym("countdown", num_questions=5)
    env.reset(seed=0)
    right = env.right_answer(env._task)
    assert env.grade(right, env._task).score == 1
    for answer in ("9**9**9**9", "factorial(10**9)"):
        with pytest.raises(GradingFailed, match="took longer than 1 s"):
            env.step(f"<answer>{answer}</answer>")
        assert env.grade(right, env._task).score == 1


def test_an_answer_that_gets_past_the_refusal_ends_its_own_process_alone(monkeypatch):
    """As in a version of Python, or of a scorer, that the refusal does not know."""
    monkeypatch.setattr(
        "cod_lightning.envs.reasoning_gym_world._GRADER", "tests.envs.test_reasoning_gym_world:trusting"
    )
    env = ReasoningGym("spiral_matrix", num_questions=4)
    env.reset(seed=0)
    for answer in ("__import__('os')._exit(0)", "__import__('os')._exit(3)", "__import__('ctypes').string_at(0)"):
        with pytest.raises(GradingFailed):
            env.grade(answer, env._task)
    env.grade(PATCH, env._task)
    assert env.grade("1 2 3", env._task).score == 0
    assert env.grade(env.right_answer(env._task), env._task).score == 1


def trusting(datasets):
    """The grader without its refusal."""
    from cod_lightning.envs import reasoning_gym_grading

    reasoning_gym_grading._see = lambda *arguments: None
    return reasoning_gym_grading.grader(datasets)


@each(
    ("settings", "complaint"),
    [
        ({"dataset": "arc_9d"}, r"data\.env\.dataset is arc_9d"),
        ({"levels": [{"nothing": 1}]}, r"data\.env\.levels"),
        ({"levels": [{"num_train": 0}]}, r"data\.env\.levels.*num_train"),
        ({"group": "rule"}, r"data\.env\.group is rule"),
        ({"num_questions": 1}, r"data\.env\.num_questions"),
    ],
)
def test_what_reasoning_gym_does_not_have_is_named(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        ReasoningGym(**settings).sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
