"""reasoning-gym's questions as packs, scored by its own function."""

import copy
import json
import random

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Reference
from cod_lightning.envs.reasoning_gym_world import ReasoningGym
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.conformance import check_world
from cod_lightning.types import EpisodeStatus, Split

reasoning_gym = pytest.importorskip("reasoning_gym", reason="pip install 'cod-lightning[reasoning-gym]'")


@pytest.fixture(scope="module")
def arc():
    return ReasoningGym("arc_1d", group="task_name", num_questions=300)


def rules_of(env, pack):
    keys = [json.loads(task.spec.key) for task in pack.tasks]
    return {env._entry(key["level"], key["index"])["metadata"]["task_name"] for key in keys}


def test_no_rule_of_the_contract_is_broken(arc):
    found = list(check_world(arc, HintContext(), num_packs=10, pack_size=4))
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
    assert env.categories() == ("caesar_cipher-0", "caesar_cipher-1")
    for category, level in zip(env.categories(), (0, 1), strict=True):
        pack = env.of_category(category).sample_pack(split=Split.TEST, index=0, num_tasks=3)
        assert {json.loads(task.spec.key)["level"] for task in pack.tasks} == {level}
    mixed = [env.sample_pack(split=Split.TRAIN, index=i, num_tasks=3) for i in range(20)]
    assert {len({json.loads(t.spec.key)["level"] for t in pack.tasks}) for pack in mixed} == {1}


def test_a_copy_draws_the_same_and_the_global_generator_stays(arc):
    random.seed(5)
    state = random.getstate()
    asked = {"split": Split.TEST, "index": 1, "num_tasks": 3}
    assert copy.deepcopy(arc).sample_pack(**asked) == arc.sample_pack(**asked)
    assert random.getstate() == state


def test_an_answer_at_which_their_scorer_raises_is_malformed(arc, monkeypatch):
    monkeypatch.setattr(type(arc._dataset(0)), "score_answer", lambda self, answer, entry: 1 / 0)
    arc.reset(seed=1)
    assert "arc_1d cannot score it (ZeroDivisionError). The task is over." in arc.step("<answer>1</answer>")[0]
    assert arc.status is EpisodeStatus.MALFORMED


def test_there_is_no_scripted_reference(arc):
    with pytest.raises(NotImplementedError):
        arc.reference(Reference.SCRIPTED, arc.sample_pack(split=Split.TRAIN, index=0, num_tasks=2))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"dataset": "arc_9d"}, r"data\.env\.dataset is arc_9d"),
        ({"levels": [{"nothing": 1}]}, r"data\.env\.levels"),
        ({"levels": [{"num_train": 0}]}, r"data\.env\.levels.*num_train"),
        ({"group": "rule"}, r"data\.env\.group is rule; expected a field of the metadata.*task_name"),
        ({"num_questions": 1}, r"data\.env\.num_questions"),
    ],
)
def test_what_reasoning_gym_does_not_have_is_named(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        ReasoningGym(**settings).sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
