"""A curriculum: packs of few tasks and tasks of few turns first, longer ones stage by stage."""

from collections.abc import Mapping, Sequence
from typing import Any

from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Count, Several
from cod_lightning.training.packs import PackChoice, PackOutcomes, PackSource


class Growth(PackSource):
    """Packs 0, 1, 2, ... as the environment draws them, with a bound on their tasks, or on the turns of a task, that grows.

    Stage s lasts `rollouts_per_stage` rollouts, the last one to the end of the training. A task that reaches its bound is cut off
    with the lowest reward, as one that runs out of the policy's window is. Validation and suites have full packs from the start.

    Source: ScalingInter-RL of AgentGym-RL (arXiv 2509.08755), which raises the number of turns in steps after a fixed number of
    updates. What differs: stages are counted in rollouts, the number of tasks can grow too, and the prompt does not mention the
    bound (it states the environment's own).

    Args:
        rollouts_per_stage: Rollouts from one stage to the next.
        num_tasks: Tasks of a pack by stage, from 2 to `data.pack_size`; null: always `data.pack_size`.
        max_turns: Turns of a task by stage; null: always the environment's own bound.
    """

    def __init__(
        self,
        rollouts_per_stage: Count = 10,
        num_tasks: list[Several] | None = None,
        max_turns: list[Count] | None = None,
    ) -> None:
        self.rollouts_per_stage = rollouts_per_stage
        self.num_tasks, self.max_turns, self.sizes = num_tasks, max_turns, num_tasks or ()
        self.num_rollouts = 0
        """Rollouts that are over."""

    def check(self, env: TextEnv, pack_size: int) -> None:
        if self.num_tasks and max(self.num_tasks) > pack_size:
            expected = f"at most data.pack_size={pack_size}"
            raise ConfigError("data.source.num_tasks", self.num_tasks, expected, "Lower the last one.")

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
