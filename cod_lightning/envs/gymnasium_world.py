"""Any text environment of gymnasium as a world: give it rules and a list of tasks, and packs come out."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium

from cod_lightning.envs.base import HiddenRules
from cod_lightning.envs.dataset.records import objects
from cod_lightning.envs.grouped import GroupedTasks, group_name
from cod_lightning.envs.task_world import TaskWorld
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Count
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class GymnasiumTask:
    """What the environment is reset with."""

    options: str
    """As JSON."""
    seed: int


class GroupRules(HiddenRules["GymnasiumWorld"]):
    """What packs of the environment hide."""

    def hidden_rule(self, pack: Pack) -> str:
        """The group's value; without groups all packs hide the same."""
        key, spec = self.env._group_key, self.env._spec(pack.tasks[0])
        return self.env.name if key is None else group_name(json.loads(spec.options).get(key))


class GymnasiumWorld(TaskWorld[GymnasiumTask]):
    """A plain `gymnasium.Env` whose observations and actions are strings, and a list of its tasks.

    A task is the `options` of the environment's `reset`. Tasks with one value of `group_key` share a hidden rule: a pack draws
    its tasks from one group, without repeats as long as there are others. A group belongs to one split (without groups: a
    task does). The last reward of a task counts, or the sum, and the last observation is its feedback.

    Args:
        env: The environment. Texts may hold anything; it must bear being reset many times and deep-copied.
        tasks: Options of `reset`, or the path of a JSON Lines file of them.
        rules: System text: what the world is and how to answer.
        max_turns: Turns per task; the adapter ends longer ones as truncated.
        group_key: Key of the options that says which tasks share a hidden rule; null: all do.
        success_at: Reward from which a task counts as solved.
        min_reward: Smallest reward of a task.
        max_reward: Largest reward of a task.
        sum_rewards: Add up the rewards of all turns instead of taking the last.
        world_name: Short identity, part of every pack id; null takes the environment's class name.
    """

    companions = (GroupRules,)
    task_type = GymnasiumTask
    malformed = False
    """Whether the last answer could not be read, where the environment tells."""

    def __init__(
        self,
        env: gymnasium.Env,  # without types in brackets, with which jsonargparse makes the bare gymnasium.Env
        tasks: list[dict[str, Any]] | str,
        rules: str,
        max_turns: Count = 10,
        group_key: str | None = None,
        success_at: float = 1.0,
        min_reward: float = 0.0,
        max_reward: float = 1.0,
        sum_rewards: bool = False,
        world_name: str | None = None,
    ) -> None:
        _check_speaks(env)
        self.env, self._rules = env, rules
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.max_turns, self.success_at, self.sum_rewards = max_turns, success_at, sum_rewards
        self._group_key = group_key
        self.traits = replace(self.traits, reward_range=(min_reward, max_reward))
        self.name = world_name or type(env.unwrapped).__name__.lower()
        self._tasks = GroupedTasks(_named(listed_tasks(tasks), group_key))

    @property
    def rules(self) -> str:
        return self._rules

    @property
    def success(self) -> bool:
        return bool(self._outcome) and self._paid >= self.success_at

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        world_seed = derive_seed(self.name, str(split), seed, index)
        order = self._tasks.draw(random.Random(world_seed), split, num_tasks)
        specs = (GymnasiumTask(options=o, seed=derive_seed(world_seed, n) % 2**31) for n, o in enumerate(order))
        return self._pack(split, index, seed, world_seed, specs, "options")

    def _drawn(self, seed: int) -> GymnasiumTask:
        rng = random.Random(seed)
        return GymnasiumTask(options=rng.choice(rng.choice(self._tasks.all)), seed=rng.randrange(2**31))

    def _start(self, task: GymnasiumTask) -> None:
        self._turns, self._paid = 0, 0.0
        self._shown: str = self.env.reset(seed=task.seed, options=json.loads(task.options))[0]

    def _acted(self, action: str) -> str:
        self._shown, reward, terminated, truncated, _ = self.env.step(action)
        self._turns += 1
        self._paid = self._paid + float(reward) if self.sum_rewards else float(reward)
        if self.malformed:
            self._paid = self.traits.least
        if terminated:
            return "malformed" if self.malformed else "over"
        return "late" if truncated or self._turns >= self.max_turns else ""

    def _observed(self) -> str:
        return self._shown

    def _feedback(self) -> str:
        return self._shown

    def _reward(self) -> float:
        return self._paid

    def close(self) -> None:
        self.env.close()


def _check_speaks(env: gymnasium.Env) -> None:
    """Raise `ConfigError` unless it shows texts and takes texts."""
    for kind in ("observation_space", "action_space"):
        if not isinstance(space := getattr(env, kind, None), gymnasium.spaces.Text):
            remedy = "Wrap the environment in text."
            raise ConfigError("data.env.env", type(space).__name__, f"a Text {kind}", remedy)


def listed_tasks(tasks: list[dict[str, Any]] | str) -> list[dict[str, Any]]:
    """The tasks, or those of a file, one JSON object a line. Raises `ConfigError` with file and line."""
    if not isinstance(tasks, str):
        return tasks
    return [task for task in objects(Path(tasks), "data.env.tasks") if task is not None]


def _named(tasks: list[dict[str, Any]], key: str | None) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """Tasks with the names of their groups."""
    for number, task in enumerate(tasks):
        if key is not None and key not in task:
            raise ConfigError(f"data.env.tasks[{number}]", sorted(task), f"the group_key '{key}' in it", "Add it.")
        yield None if key is None else group_name(task[key]), task
