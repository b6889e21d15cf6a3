"""Environments of verifiers, whose loop is their own; they run in a Python of their own.

Needs `verifiers` (MIT) there, 0.4 or newer. Source: https://github.com/PrimeIntellect-ai/verifiers
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cod_lightning.envs.base import HiddenRules, Traits, Unchanging
from cod_lightning.envs.grouped import GroupedTasks, group_name
from cod_lightning.envs.own_loop import RULES, Access, OwnLoop
from cod_lightning.envs.process_pool import PendingCall
from cod_lightning.envs.programs.processes import LinePool
from cod_lightning.envs.task_world import TaskWorld
from cod_lightning.errors import ConfigError, EnvironmentFailure
from cod_lightning.extras import check_runnable
from cod_lightning.ranges import Count, Positive
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split

_WORKER = Path(__file__).with_name("verifiers_worker.py")
_START_S = 180.0
"""For a process to import the environment and list its tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiersTask(Unchanging):
    """A task's data, as JSON."""

    data: str


class VerifiersRules(HiddenRules["VerifiersWorld"]):
    """What packs of the taskset hide."""

    def hidden_rule(self, pack: Pack) -> str:
        """The group's value; without groups nothing that they have in common."""
        key = self.env._group_key
        return pack.id if key is None else group_name(json.loads(self.env._spec(pack.tasks[0]).data)[key])


class VerifiersWorld(OwnLoop, TaskWorld[VerifiersTask]):
    """A taskset of verifiers with its environment and harness; a pack draws tasks of one group.

    Rules and context become the task's system prompt, before its own. verifiers tokenises, by the policy's tokenizer, and sends ids
    to this process, which samples, and trains on those ids. The reward is the sum over the traces that its environment trains on;
    what hooks put as text into `trace.info` is the feedback. An episode with an error costs its lifecycle.

    Args:
        env: The environment's config, as verifiers takes it: {taskset: {id: ...}}, with `id` where it is not the taskset's own.
        tokenizer: Folder or name of the policy's tokenizer.
        python: A Python that has verifiers and the environment; a module of the working directory is found, too.
        renderer: How messages become ids, as verifiers takes it ({name: qwen3}); null: verifiers chooses by the name.
        rules: System text that stands before the context; null says that tasks belong together.
        group_key: Field of the tasks' data that says which share a hidden rule; null: all do.
        num_tasks: Tasks of the taskset that are listed.
        max_turns: Requests to the policy in a task.
        success_at: Reward from which a task counts as solved.
        min_reward: Smallest reward of a task.
        max_reward: Largest reward of a task.
        timeout_s: Seconds for one task.
        num_processes: Most tasks at a time, each in a process.
        variables: Variables of this process's environment that verifiers gets beyond paths, such as [HF_HOME, HF_TOKEN].
        world_name: Short identity, part of every pack id; null takes the taskset's id.
    """

    task_type = VerifiersTask
    late = None
    companions = (VerifiersRules,)
    shows_context = True

    def __init__(
        self,
        env: dict[str, Any],
        tokenizer: str,
        python: str = "python",
        renderer: dict[str, Any] | None = None,
        rules: str | None = None,
        group_key: str | None = None,
        num_tasks: Count = 1000,
        max_turns: Count = 16,
        success_at: float = 1.0,
        min_reward: float = 0.0,
        max_reward: float = 1.0,
        timeout_s: Positive = 600.0,
        num_processes: Count = 4,
        variables: Sequence[str] = (),
        world_name: str | None = None,
    ) -> None:
        check_runnable([python], "data.env.python")
        self._rules, self.max_turns, self.success_at = RULES if rules is None else rules, max_turns, success_at
        self.traits, self.timeout_s = Traits(reward_range=(min_reward, max_reward), blocking=True), timeout_s
        settings = {"env": env, "tokenizer": tokenizer, "renderer": renderer}
        self._pool = LinePool([python, str(_WORKER), json.dumps(settings)], num_processes, True, variables)
        self._pending, self._group_key = PendingCall(), group_key
        taskset = env.get("taskset")
        self.name = world_name or str(taskset.get("id", "verifiers") if isinstance(taskset, dict) else "verifiers")
        self._tasks = GroupedTasks(self._listed(num_tasks, group_key, env), "data.env.env")
        self._start(VerifiersTask(data="{}"))

    @property
    def rules(self) -> str:
        return self._rules

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        world_seed = derive_seed(self.name, str(split), seed, index)
        order = self._tasks.draw(random.Random(world_seed), split, num_tasks)
        return self._pack(split, index, seed, world_seed, (VerifiersTask(data=data) for data in order), "data")

    def _acted(self, action: str) -> str:
        """A person or a script cannot play: the task ends."""
        return "malformed"

    def _feedback(self) -> str:
        return "Only its own program plays this environment. The task is over."

    def _reward(self) -> float:
        return self.traits.least

    def play(self, system: str, access: Access) -> tuple[str, float]:
        self._pending = PendingCall()
        where = {"base_url": access.base_url, "api_key": access.key, "model": access.model}
        line = {"task": json.loads(self._task.data), "system": system, **where}
        found = self._pool.ask(line, _is_result, self.timeout_s, self._pending)
        if "error" in found:
            raise EnvironmentFailure(f"verifiers: {found['error']}")
        reward = float(found["reward"])
        self._outcome = "win" if reward >= self.success_at else "miss"
        self.shown = tuple(map(str, found["shown"]))
        return found["feedback"] or f"The task is over. Reward: {reward:g}.", reward

    def interrupt(self) -> None:
        self._pending.cancel()

    def _start(self, task: VerifiersTask) -> None:
        self._task, self.shown = task, ()

    def _drawn(self, seed: int) -> VerifiersTask:
        rng = random.Random(seed)
        return VerifiersTask(data=rng.choice(rng.choice(self._tasks.all)))

    def _observed(self) -> str:
        prompt = json.loads(self._task.data).get("prompt")
        if isinstance(prompt, list):
            return "\n\n".join(str(one.get("content", "")) for one in prompt if isinstance(one, dict))
        return prompt or ""

    def _listed(self, num_tasks: int, group_key: str | None, env: dict[str, Any]) -> Any:
        """Tasks with the names of their groups. Raises `ConfigError` where verifiers has no such environment."""
        try:
            found = self._pool.ask({"list": num_tasks}, lambda one: "tasks" in one, _START_S, self._pending)
        except EnvironmentFailure as error:
            expected = f"an environment of verifiers that can be loaded ({error})"
            remedy = "Try it there: vf.load_environment(vf.resolve_env_config(...))."
            raise ConfigError("data.env.env", json.dumps(env), expected, remedy) from error
        for number, data in enumerate(found["tasks"]):
            if group_key is not None and group_key not in data:
                expected = f"a field of the tasks' data; task {number} has {', '.join(sorted(data))}"
                raise ConfigError("data.env.group_key", group_key, expected, "Null takes all tasks as one group.")
            yield None if group_key is None else group_name(data[group_key]), data


def _is_result(found: dict[str, Any]) -> bool:
    reward, feedback = found.get("reward"), found.get("feedback")
    known = isinstance(reward, int | float) and not isinstance(reward, bool) and isinstance(feedback, str)
    return (known and isinstance(found.get("shown"), list)) or isinstance(found.get("error"), str)
