"""Plain text environments of gymnasium as worlds."""

import json
import os
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from cod_lightning.commands.worlds import parse_world
from cod_lightning.envs.base import text_space
from cod_lightning.envs.gymnasium_world import GymnasiumWorld, listed_tasks
from cod_lightning.errors import ConfigError
from cod_lightning.types import EpisodeStatus, Split
from tests.cases import each


class Capitals(gymnasium.Env[str, str]):
    """Asks for a word; three tries."""

    observation_space = action_space = text_space()
    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.wanted = (options or {}).get("answer", "Rome")
        return f"Say {(options or {}).get('question', 'the capital')}.", {"left": "out"}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        right = action == self.wanted
        return ("Yes." if right else "No."), float(right), right, False, {}


TASKS = [{"country": f"c{n % 40}", "question": f"q{n}", "answer": f"a{n}"} for n in range(200)]


def _world(**parameters: Any) -> GymnasiumWorld:
    return GymnasiumWorld(**{"env": Capitals(), "tasks": TASKS, "rules": "Answer.", "max_turns": 3, **parameters})


def test_gymnasiums_checker_finds_nothing_to_complain_about():
    check_env(_world(), skip_render_check=True)


def test_a_task_is_played_with_its_own_options():
    env = _world()
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=3)
    for task in pack.tasks:
        options = json.loads(task.spec.options)
        assert env.reset(options={"task": task}) == (f"Say {options['question']}.", {})
        assert env.step("wrong") == ("No.", 0.0, False, False, {})
        assert env.step(options["answer"]) == ("Yes.", 1.0, True, False, {})
        assert env.success
        assert env.status is EpisodeStatus.COMPLETED


@pytest.mark.slow
def test_a_config_names_the_environment_by_its_class_path(tmp_path):
    init_args = {
        "env": {"class_path": f"{__name__}.Capitals"},
        "tasks": TASKS,
        "rules": "Answer.",
        "group_key": "country",
    }
    described = {"class_path": "cod_lightning.envs.gymnasium_world.GymnasiumWorld", "init_args": init_args}
    (tmp_path / "capitals.yaml").write_text(json.dumps(described))
    world = parse_world("check", "", ["--env", str(tmp_path / "capitals.yaml")]).env
    assert (type(world.env).__name__, world.name) == ("Capitals", "capitals")


def test_rewards_of_all_turns_can_be_added_up():
    env = _world(sum_rewards=True, max_reward=3.0, success_at=0.5)
    env.env.step = lambda action: ("ok", 0.25, False, False, {})
    env.reset(seed=0)
    assert [env.step("x")[1] for _ in range(3)] == [0.0, 0.0, 0.75]


@each("sum_rewards", [False, True])
def test_an_answer_that_an_environment_says_it_could_not_read_is_worth_least(sum_rewards):
    class Telling(GymnasiumWorld):
        malformed = property(lambda self: self.env.wanted == "unread")

    env = Telling(Capitals(), TASKS, "Answer.", min_reward=-2.0, sum_rewards=sum_rewards)
    env.reset(seed=0)
    env.env.wanted = "unread"
    assert env.step("unread")[1:4] == (-2.0, True, False)
    assert (env.success, env.status) == (False, EpisodeStatus.MALFORMED)


def test_packs_keep_to_a_group_and_groups_to_a_split_and_options_that_come_again_are_a_repeat():
    env = _world(group_key="country")
    seen: dict[str, Split] = {}
    for split in Split:
        for index in range(30):
            pack = env.sample_pack(split=split, index=index, num_tasks=5)
            countries = {json.loads(task.spec.options)["country"] for task in pack.tasks}
            assert len(countries) == 1
            assert len({task.spec.options for task in pack.tasks}) == 5, "no repeats while there are others"
            assert seen.setdefault(countries.pop(), split) is split
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=64)
    assert [task.repeat for task in pack.tasks] == [False] * 5 + [True] * 59


def test_tasks_are_read_from_a_file(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(json.dumps(task) for task in TASKS) + "\n\n")
    packs = [_world(tasks=t).sample_pack(split=Split.TRAIN, index=4, num_tasks=4) for t in (str(path), TASKS[::-1])]
    assert packs[0] == packs[1]
    path.write_text('{"country": "a\u2028b", "name": "\u00fc"}\r\n', encoding="utf-8")
    assert listed_tasks(str(path)) == [{"country": "a\u2028b", "name": "\u00fc"}]


@each(
    ("content", "complaint"),
    [
        ("{", r"tasks\.jsonl:1"),
        ("[" * 10_000, r"tasks\.jsonl:1"),
        ("\udcff", "in UTF-8"),
        ("[1]", "a JSON object"),
        ("\n", "at least one task"),
        (None, "No such file"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, content, complaint):
    path = tmp_path / "tasks.jsonl"
    if content is not None:
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=complaint):
        _world(tasks=str(path))


def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "tasks.jsonl")
    with pytest.raises(ConfigError, match="it is no file"):
        _world(tasks=str(tmp_path / "tasks.jsonl"))


def test_impossible_parameters_are_refused():
    with pytest.raises(ConfigError, match="group_key 'continent'"):
        _world(group_key="continent")
    with pytest.raises(ConfigError, match="a Text observation_space"):
        _world(env=gymnasium.make("FrozenLake-v1"))
    only = _world(tasks=[{"n": next(n for n in range(100) if _in_training(n))}])
    with pytest.raises(ConfigError, match="test split"):
        only.sample_pack(split=Split.TEST, index=0, num_tasks=1)


def _in_training(number: int) -> bool:
    try:
        _world(tasks=[{"n": number}]).sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    except ConfigError:
        return False
    return True
