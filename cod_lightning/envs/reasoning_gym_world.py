"""The generated questions of reasoning-gym as a world, graded by its own `score_answer` in a sandbox.

Needs the extra `reasoning-gym` (Apache-2.0). Source: https://github.com/open-thought/reasoning-gym
"""

import copy
import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from cod_lightning.envs.answers import quoted
from cod_lightning.envs.base import TextEnv, Traits, Variants
from cod_lightning.envs.grouped import GroupedTasks, group_name
from cod_lightning.envs.question_world import Grade, QuestionTask, QuestionWorld, answer_form
from cod_lightning.envs.reasoning_gym_grading import REFUSED
from cod_lightning.errors import ConfigError, GradingFailed
from cod_lightning.extras import require
from cod_lightning.ranges import Count
from cod_lightning.sandbox.sandbox import Sandbox
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split

_RULES = (
    "You get questions, one after the other. Those of one series have something in common: what you find out with one may help "
    "with the next."
)
_GRADER = "cod_lightning.envs.reasoning_gym_grading:grader"
_GRADING_S, _GRADING_MB = 10.0, 1024
_SEED = 0
"""Of the datasets, whose questions stay the same in every run."""
_GENERATE = "import sys; from cod_lightning.envs.reasoning_gym_world import generate; generate(*sys.argv[1:])"


class GymVariants(Variants["ReasoningGym"]):
    """Parts of the datasets."""

    def categories(self) -> tuple[str, ...]:
        return tuple(f"{self.env.dataset}-{level}" for level in range(len(self.env._levels)))

    def of_category(self, category: str) -> TextEnv:
        twin, level = copy.copy(self.env), self.categories().index(category)
        twin._drawn_levels, twin.name = (level,), f"{self.env.name}-{level}"
        return twin


class ReasoningGym(QuestionWorld):
    """Questions of one of reasoning-gym's datasets; a pack draws those that share a hidden rule, or a difficulty.

    Args:
        dataset: Name of the dataset, such as arc_1d, rearc or caesar_cipher.
        group: Field of a question's metadata that says which rule it follows (arc_1d: task_name, rearc: task_id); null: a pack
            draws any questions of its level. A rule belongs to one split, without rules a question does.
        levels: Settings of the dataset for each difficulty, the easiest first; a pack has one level. Null: its defaults.
        num_questions: Questions that are generated for each level, at the start: of some datasets they take minutes.
        asked: Further parameters of `QuestionWorld`; some datasets give a share of 1 to an answer that is nearly right.
    """

    companions = (GymVariants, *QuestionWorld.companions)

    traits = Traits(blocking=True)
    """It waits for the process that grades."""

    def __init__(
        self,
        dataset: str = "arc_1d",
        group: str | None = None,
        levels: list[dict[str, Any]] | None = None,
        num_questions: Count = 1000,
        **asked: Any,
    ) -> None:
        require("reasoning-gym", "data.env.dataset", dataset)
        self.dataset, self.num_questions = dataset, num_questions
        self._levels = tuple(json.dumps(level, sort_keys=True) for level in (levels or [{}]))
        drawn = derive_seed(group or "", num_questions, *self._levels) % 2**24
        super().__init__(f"{dataset}-{drawn:06x}", f"{_RULES}\n\n{answer_form('YOUR ANSWER')}", **asked)
        datasets = [[dataset, level, _SEED, num_questions] for level in self._levels]
        for one in datasets:
            _dataset(*one)
        self._datasets = json.dumps(datasets)
        self._sandbox = Sandbox(_GRADER, [datasets], path=sys.path, time_s=_GRADING_S, memory_mb=_GRADING_MB)
        self._drawn_levels = tuple(range(len(self._levels)))
        self._tasks = [
            GroupedTasks(self._named(n, group), "data.env.num_questions", lambda text: self._task_of(text).question)
            for n in self._drawn_levels
        ]

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        world_seed = derive_seed(self.name, _SEED, str(split), seed, index)
        rng = random.Random(world_seed)
        drawn = self._tasks[rng.choice(self._drawn_levels)].draw(rng, split, num_tasks)
        return self._pack(split, index, seed, world_seed, map(self._task_of, drawn), "question")

    def grade(self, answer: str, task: QuestionTask) -> Grade:
        """The dataset's own score. An answer at which its scorer raises, and a program, are not of a form that it reads.

        Raises `GradingFailed`, which costs the lifecycle, where the answer takes too long or ends the process that grades it.
        """
        key = json.loads(task.key)
        request = key["level"], self._entry(key["level"], key["index"]), answer
        done = self._sandbox.run(pickle.dumps(request))
        if done.code == REFUSED:
            return Grade(0.0, "it is a program, not a value or a formula", malformed=True)
        if done.complaint or not done.output:
            raise GradingFailed(f"the process that graded {quoted(answer)} {done.complaint or 'gave no score'}")
        found = json.loads(done.output)
        if "raised" in found:
            return Grade(0.0, f"{self.dataset} cannot score it ({found['raised']})", malformed=True)
        return Grade(min(1.0, max(0.0, found["score"])))

    def right_answer(self, task: QuestionTask) -> str | None:
        key = json.loads(task.key)
        answer = self._entry(key["level"], key["index"])["answer"]
        return None if answer is None else str(answer)

    def _drawn(self, seed: int) -> QuestionTask:
        rng = random.Random(seed)
        return self._task_of(rng.choice(rng.choice(self._tasks[rng.choice(self._drawn_levels)].all)))

    def _named(self, level: int, group: str | None) -> Iterator[tuple[str | None, dict[str, Any]]]:
        """Each question of the level, by its rule."""
        for index in range(self.num_questions):
            name = None
            if group is not None:
                metadata = self._entry(level, index)["metadata"]
                if group not in metadata:
                    expected = f"a field of the metadata of {self.dataset}, which has {', '.join(sorted(metadata))}"
                    raise ConfigError("data.env.group", group, expected, "Null draws any questions.")
                name = group_name(metadata[group])
            yield name, {"level": level, "index": index, "group": name or ""}

    def _task_of(self, text: str) -> QuestionTask:
        key = json.loads(text)
        question = self._entry(key["level"], key["index"])["question"]
        return QuestionTask(question=question, key=text, group=key["group"])

    def _entry(self, level: int, index: int) -> dict[str, Any]:
        return _questions(self._datasets)[level * self.num_questions + index]


def _dataset(name: str, settings: str, seed: int, size: int) -> Any:
    """The dataset with these settings. Raises `ConfigError` for a name or a setting that reasoning-gym refuses."""
    import reasoning_gym  # pyright: ignore[reportMissingImports]

    try:
        return reasoning_gym.create_dataset(name, seed=seed, size=size, **json.loads(settings))
    except ValueError as error:
        raise ConfigError("data.env.dataset", name, f"a dataset of reasoning-gym ({error})", "Correct it.") from error
    except (TypeError, AssertionError) as error:
        remedy = "Correct the settings of this level."
        raise ConfigError("data.env.levels", settings, f"settings of {name} ({error})", remedy) from error


@lru_cache(maxsize=16)
def _questions(datasets: str) -> list[dict[str, Any]]:
    """Those of all levels, in order, from a process without random hashes: some datasets draw from sets, in their order."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _GENERATE, datasets], env=environment, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        expected = f"a dataset that can generate its questions (its process ended with exit code {done.returncode})"
        raise ConfigError("data.env.dataset", json.loads(datasets)[0][0], expected, "It said above why it could not.")
    return pickle.loads(done.stdout)


def generate(datasets: str) -> None:
    """Write the questions of datasets, which are name, settings, seed and size (JSON), to standard output."""
    output, sys.stdout = sys.stdout.buffer, sys.stderr  # what a dataset prints is no question
    found = list[dict[str, Any]]()
    for name, settings, seed, size in json.loads(datasets):
        made = _dataset(name, settings, seed, size)
        for index in range(size):
            random.seed(index)  # list_functions draws from Python's global generator
            found.append(made[index])
    pickle.dump(found, output)
