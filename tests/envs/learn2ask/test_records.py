"""Decision points prepared from real dialogues: what a file must look like, and how it is played."""

import copy
import json
import re
from pathlib import Path

import pytest
from gymnasium.utils.env_checker import check_env

from cod_lightning.envs.base import HiddenRules, Reference, beside
from cod_lightning.envs.learn2ask import Learn2Ask
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split
from tests.cases import each
from tests.envs.scripted_life import by_position, live

GUIDE = Path(__file__).parents[3] / "docs/guides/learn2ask_data.md"


def point(n: int, **fields) -> dict:
    stop = n % 3 == 0
    said = [{"role": "user", "content": f"I sneeze, {n}."}]
    if stop:
        said += [{"role": "assistant", "content": "Any fever?"}, {"role": "user", "content": "No."}]
    return {
        "cid": f"{n // 2}_{n}",
        "diagn": f"illness {n % 7}",
        "messages": said,
        "decision_truth": "stop" if stop else "continue",
        "info_truth": "" if stop else "Symptom: sore throat, Symptom quality: thick discharge",
        **fields,
    }


def write(path: Path, *lines: dict | str) -> str:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
    path.write_text(text + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def many(tmp_path) -> str:
    return write(tmp_path / "points.jsonl", *(point(n) for n in range(120)))


def test_a_file_is_played(many):
    env = Learn2Ask(data_path=many)
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=4)
    assert "pharmacy" in env.rules
    for task in pack.tasks:
        observation, _ = env.reset(options={"task": task})
        assert "Patient: I sneeze" in observation
        assert env.observation_space.contains(observation)
        answer = "<answer><stop /></answer>"
        if task.spec.label == "continue":
            assert task.spec.missing == ("Symptom: sore throat", "Symptom quality: thick discharge")
            answer = "<answer>Do you have a sore throat: no, a little or a lot?</answer>"
        feedback, reward, *_ = env.step(answer)
        assert (reward, env.success) == (1, True)
        assert "required" not in feedback
    check_env(env, skip_render_check=True)


@pytest.mark.parametrize("split_by", ["session", "diagnosis"])
def test_sessions_or_diagnoses_stay_whole_in_a_split(many, split_by):
    env = Learn2Ask(data_path=many, split_by=split_by)
    assert env.records is not None
    keys = [{getattr(r, split_by) for r in env.records.by_split[split]} for split in Split]
    assert sum(map(len, keys)) == len(set.union(*keys))
    assert sum(len(env.records.by_split[split]) for split in Split) == 120


def test_packs_draw_nothing_twice_before_all_is_used_and_do_not_depend_on_their_size(many):
    env = Learn2Ask(data_path=many)
    assert env.records is not None
    test = env.records.by_split[Split.TEST]
    assert 0 < len(test) < 64
    pack = env.sample_pack(split=Split.TEST, index=1, num_tasks=64)
    ids = [task.spec.id for task in pack.tasks]
    assert set(ids[: len(test)]) == {record.id for record in test}
    assert env.sample_pack(split=Split.TEST, index=1, num_tasks=7).tasks == pack.tasks[:7]
    assert Learn2Ask(data_path=many).sample_pack(split=Split.TEST, index=1, num_tasks=64) == pack


def test_an_oracle_is_right_and_a_teacher_in_one_of_two(many):
    env = Learn2Ask(data_path=many)
    means = {kind: sum(by_position(env, kind, 40, "reward")) / 4 for kind in (Reference.RANDOM, Reference.ORACLE)}
    assert means[Reference.RANDOM] < 0.6 < means[Reference.ORACLE] == 1
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=8)
    assert {lived.status.value for lived in live(env, pack, "teacher")} == {"completed"}


def test_packs_of_dialogues_hide_nothing_in_common(many):
    env = Learn2Ask(data_path=many)
    packs = [env.sample_pack(split=Split.TEST, index=index, num_tasks=2) for index in range(3)]
    assert [beside(env, HiddenRules).hidden_rule(pack) for pack in packs] == [pack.id for pack in packs]


def test_copies_share_the_records_and_the_name_tells_the_file(many, tmp_path):
    env = Learn2Ask(data_path=many)
    other = copy.deepcopy(env)
    assert other.records is env.records
    assert other.observation_space is env.observation_space
    changed = write(tmp_path / "other.jsonl", point(0), point(1))
    assert len({env.name, Learn2Ask(data_path=changed).name, Learn2Ask(data_path=many, split_by="diagnosis").name}) == 3


def _user(text: object) -> list[dict]:
    return [{"role": "user", "content": text}]


@each(
    ("line", "named"),
    [
        ('{"cid": "1", "messages": [{"role": "us', "JSON object"),
        (point(1, cid=None), r"\$\.cid"),
        (point(1, cid=" "), "cid is empty"),
        (point(0), "cid '0_0' is there twice"),
        (point(1, decision_truth="go"), r"\$\.decision_truth"),
        (point(1, info_truth=""), "info_truth names no item"),
        (point(1, info_truth=[3]), r"\$\.info_truth"),
        (point(1, messages=[]), r"\$\.messages"),
        (point(1, messages=[{"role": "system", "content": "x"}]), r"\$\.messages\[0\].role"),
        (point(1, messages=_user("")), r"messages\[0\].content is empty"),
        (point(1, messages=_user(3)), r"\$\.messages\[0\].content"),
        (point(1, messages=[*_user("x"), {"role": "assistant", "content": "y"}]), "the last one"),
        (point(1, messages=_user("x" * 20_001)), "more than 20000"),
        (point(1, messages=_user("x") * 1001), r"\$\.messages"),
        (json.dumps(point(1, messages=_user("\ud800"))), "lone surrogates"),
        (point(1, diagn=[]), r"\$\.diagn"),
    ],
)
def test_a_bad_line_is_refused_with_file_line_field_and_remedy(tmp_path, line, named):
    path = write(tmp_path / "points.jsonl", point(0), "", line, point(2))
    with pytest.raises(ConfigError, match=named) as caught:
        Learn2Ask(data_path=path)
    assert f"{path}:3" in str(caught.value)
    assert "line" in caught.value.remedy


def test_a_file_without_decision_points_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="a file with a decision point"):
        Learn2Ask(data_path=write(tmp_path / "points.jsonl", "", ""))


def test_a_split_by_a_missing_diagnosis_an_empty_split_and_a_change_of_rule_are_config_errors(tmp_path):
    path = write(tmp_path / "points.jsonl", point(0), point(1, diagn=None))
    Learn2Ask(data_path=path)
    with pytest.raises(ConfigError, match=r"2; expected a decision point \(diagn is missing"):
        Learn2Ask(data_path=path, split_by="diagnosis")
    env = Learn2Ask(data_path=write(tmp_path / "points.jsonl", point(0)))
    full = next(split for split in Split if env.records and env.records.by_split[split])
    empty = next(split for split in Split if split is not full)
    with pytest.raises(ConfigError, match=f"split {empty}"):
        env.sample_pack(split=empty, index=0, num_tasks=1)
    with pytest.raises(ConfigError, match="hidden protocol"):
        beside(env, HiddenRules).changed(env.sample_pack(split=full, index=0, num_tasks=2), at=1, seed=0)


def test_the_guides_own_code_prepares_a_file_that_loads(tmp_path):
    guide = GUIDE.read_text()
    names: dict = {}
    exec(re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)[0], names)
    turns = [("user", "I sneeze."), ("assistant", "Any fever?"), ("user", "No."), ("assistant", "Fine.")]
    session = {"session_id": 8, "diagn": "cold", "messages": [{"role": r, "content": c} for r, c in turns]}
    points = list(names["decision_points"](session))
    assert [p["decision_truth"] for p in points] == ["continue", "stop"]
    points[0]["info_truth"] = ["fever"]
    example = re.findall(r"```json\n(.*?)\n```", guide, flags=re.DOTALL)[0]
    env = Learn2Ask(data_path=write(tmp_path / "points.jsonl", *points, example))
    assert env.records is not None
    assert [record.session for record in env.records.all] == ["8", "8", "7"]
    assert list(names["decision_points"]({**session, "messages": session["messages"][:3]})) == []
