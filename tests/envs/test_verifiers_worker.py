"""The worker of verifiers, beside a stand-in of verifiers whose rubric runs answers as code."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from cod_lightning.envs.base import HiddenRules, beside
from cod_lightning.envs.own_loop import Access
from cod_lightning.envs.programs import VerifiersWorld
from cod_lightning.envs.programs.verifiers_world import VerifiersTask
from cod_lightning.errors import EnvironmentFailure
from cod_lightning.types import Split, Task

VERIFIERS = """
import json, os
from contextlib import asynccontextmanager
from types import SimpleNamespace as Namespace

RIGHT = "4"
TrainClientConfig = ModelContext = lambda **options: Namespace(**options)

class Data(dict):
    def model_dump(self, mode):
        return dict(self)
    model_validate = classmethod(lambda cls, data: cls(data))

class Task:
    def __init__(self, data, config=None):
        self.data = data
    def with_system_prompt(self, system):
        return self
    task_type = data_type = classmethod(lambda cls: Task)

class Kind(Task):
    @classmethod
    def data_type(cls):
        return Data

class Tasks(list):
    config = Namespace(task=None)
    @classmethod
    def task_type(cls):
        return Kind

class Env:
    def __init__(self, answers):
        self.taskset = Tasks(Kind(Data(prompt=answer)) for answer in answers)
    @asynccontextmanager
    async def serving(self):
        yield
    async def run_episode(self, task, context):
        reward = float(str(eval(task.data["prompt"])) == RIGHT)  # as rubrics do
        trace = Namespace(reward=reward, agent=Namespace(trainable=True), info={"verdict": f"{reward:g}"}, nodes=[], errors=[])
        return Namespace(errors=[], traces=[trace], ok=True)

def resolve_env_config(given):
    return given

def load_environment(given):
    return Env(given["answers"])
"""
PATCH = "__import__('verifiers.v1').v1.__dict__.update(RIGHT='5') or 5"
LEFT = "__import__('subprocess').Popen(['sleep', '321.5'], start_new_session=True).poll() or 4"
STDIN = "__import__('os').read(0, 100) or 4"


ANSWERS = (PATCH, LEFT, STDIN)


def world_in(folder: Path, **settings) -> VerifiersWorld:
    """One whose only process finds the stand-in in that folder, which becomes the working directory."""
    (folder / "verifiers").mkdir(parents=True)
    (folder / "verifiers" / "__init__.py").touch()
    (folder / "verifiers" / "v1.py").write_text(VERIFIERS)
    os.chdir(folder)
    return VerifiersWorld(
        {"taskset": {"id": "sums"}, "answers": ["2 + 2", "2 + 3", PATCH]},
        "none",
        sys.executable,
        num_processes=1,
        **settings,
    )


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # and back
    return world_in(tmp_path)


def left_running() -> bool:
    """Whether what an answer has started is there."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            if b"321.5" in command.read_bytes():
                return True
    return False


def reward(world, answer: str) -> float:
    (task,) = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks
    spec = VerifiersTask(data=f'{{"prompt": "{answer}"}}')
    world.reset(options={"task": Task(id=task.id, seed=task.seed, spec=spec)})
    return world.play("", Access(base_url="http://localhost", key="key"))[1]


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_a_rubric_runs_as_code_changes_no_later_score(world, answer):
    assert [reward(world, "2 + 2"), reward(world, "2 + 3")] == [1.0, 0.0]
    assert reward(world, answer) == 1.0
    assert not left_running()
    assert [reward(world, "2 + 2"), reward(world, "2 + 3")] == [1.0, 0.0]


def test_a_task_that_a_pack_has_twice_is_a_repeat(world):
    assert [task.repeat for task in world.sample_pack(split=Split.TRAIN, index=0, num_tasks=3).tasks] == [
        False,
        True,
        True,
    ]


def test_packs_of_a_group_hide_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for key, hides in ((None, "sums/train/0/0"), ("prompt", '"2 + ')):
        world = world_in(tmp_path / str(key), group_key=key)
        pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
        assert beside(world, HiddenRules).hidden_rule(pack).startswith(hides)


def test_an_answer_that_ends_its_process_costs_its_own_lifecycle(world):
    with pytest.raises(EnvironmentFailure, match=r"ended without an answer \(exit code 3\)"):
        reward(world, "__import__('os')._exit(3)")
    assert reward(world, "2 + 2") == 1.0
