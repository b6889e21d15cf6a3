"""A curriculum: packs of few tasks and tasks of few turns first, longer ones stage by stage."""

from collections.abc import Mapping, Sequence
from typing import Any

from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ConfigError, check_at_least
from cod_lightning.training.packs import PackChoice, PackOutcomes, PackSource


class Growth(PackSource):
    """Packs 0, 1, 2, ... as the environment draws them, with a bound on their tasks, or on the turns of a task, that grows.

    Stage s lasts `rollouts_per_stage` rollouts, the last one to the end of the training. A task that reaches its bound is cut off
    with reward 0, as one that runs out of the policy's window is. Validation and suites have full packs from the start.

    Source: ScalingInter-RL of AgentGym-RL (arXiv 2509.08755), which raises the number of turns in steps after a fixed number of
    updates. What differs: stages are counted in rollouts, the number of tasks can grow too, and the prompt does not mention the
    bound (it states the environment's own).

    Args:
        rollouts_per_stage: Rollouts from one stage to the next.
        num_tasks: Tasks of a pack by stage, from 2 to `data.pack_size`; null: always `data.pack_size`.
        max_turns: Turns of a task by stage; null: always the environment's own bound.
    """

    def __init__(
        self, rollouts_per_stage: int = 10, num_tasks: list[int] | None = None, max_turns: list[int] | None = None
    ) -> None:
        self.rollouts_per_stage = rollouts_per_stage
        self.num_tasks, self.max_turns = num_tasks, max_turns
        self.changes_size = bool(num_tasks)
        self.num_rollouts = 0
        """Rollouts that are over."""

    def check(self, env: TextEnv, pack_size: int) -> None:
        check_at_least("data.source.rollouts_per_stage", self.rollouts_per_stage, 1, "10 is usual.")
        if not self.num_tasks and not self.max_turns:
            expected = "stages of packs, or max_turns with stages of tasks, since otherwise nothing grows"
            raise ConfigError("data.source.num_tasks", self.num_tasks, expected, "Set one of them, as in [2, 4].")
        for key, stages, least in (("num_tasks", self.num_tasks, 2), ("max_turns", self.max_turns, 1)):
            if stages and (stages != sorted(stages) or stages[0] < least):
                expected = f"numbers from {least} on, none below the one before"
                raise ConfigError(f"data.source.{key}", stages, expected, "Order them.")
        if self.num_tasks and self.num_tasks[-1] > pack_size:
            expected = f"at most data.pack_size={pack_size}, which credit and prompts were checked for"
            raise ConfigError("data.source.num_tasks", self.num_tasks, expected, "Lower the last one.")
        if self.max_turns and len(self.categories) == 1 and self.max_turns[0] >= env.max_turns:
            expected = f"a first stage below {env.max_turns}, the turns that {env.name} gives a task"
            raise ConfigError("data.source.max_turns", self.max_turns, expected, "Lower it, or grow num_tasks instead.")

    @property
    def stage(self) -> int:
        """Of the next rollout, from 0 on."""
        return self.num_rollouts // self.rollouts_per_stage

    def next(self, first: int, count: int) -> Sequence[PackChoice]:
        size, turns = self._bound(self.num_tasks), self._bound(self.max_turns)
        return [PackChoice(index, num_tasks=size, max_turns=turns) for index in range(first, first + count)]

    def observe(self, outcomes: PackOutcomes) -> None:
        self.num_rollouts += 1

    def metrics(self) -> Mapping[str, float]:
        bounds = {"num_tasks": self._bound(self.num_tasks), "max_turns": self._bound(self.max_turns)}
        return {name: bound for name, bound in bounds.items() if bound is not None}

    def state_dict(self) -> dict[str, Any]:
        return {"num_rollouts": self.num_rollouts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_rollouts = int(state_dict["num_rollouts"])

    def _bound(self, stages: Sequence[int] | None) -> int | None:
        return stages[min(self.stage, len(stages) - 1)] if stages else None
