"""Optimal Control: steer a point on a line whose decay a and gain b are hidden and shared by a pack, with one formula a task.

Source of the world: arXiv 2606.20002 and its later public code. Differences: what the world carries over (the last law that ran)
is kept in the object, is dropped when the hidden numbers change and can be switched off; splits are disjoint by the
pair (a, b); numbers are drawn with three decimals, which is what tables show; the rules state the ranges.
"""

import random
from typing import Any

from cod_lightning.envs.base import Traits
from cod_lightning.envs.checks import exhausted
from cod_lightning.envs.control.draws import MOST_DRAWS, ControlParameters
from cod_lightning.envs.control.evidence import NAMES, ActionError, Earlier, run_formula
from cod_lightning.envs.control.fused import CompactControl, class_words
from cod_lightning.envs.control.plant import ControlTask, PlantBelief, PlantRun
from cod_lightning.envs.control.policies import ControlPlay
from cod_lightning.envs.control.sentences import NaturalControl
from cod_lightning.envs.expressions import ExpressionError, compile_expression
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.task_world import MemoryVariants, TaskPlayers, TaskRules, TaskWorld
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split

SOLVED = 0.5
"""Reward from which a task counts as solved."""


class ControlRules(TaskRules["OptimalControl"]):
    """What packs of the plant hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Another pair (a, b) of the same split from task `at` on, at least one of them in another half of its range (of
        the four sizes and signs, for b); starts and targets stay."""
        old = self.env._spec(pack.tasks[at])
        rng = random.Random(derive_seed("control change", pack.id, seed))
        before = class_words(self.env.parameters, PlantBelief(old.a, old.b))
        for _ in range(MOST_DRAWS):
            a, b = self.env.parameters.hidden(rng, pack.split)
            if class_words(self.env.parameters, PlantBelief(a, b)) != before:
                return self.env._with(pack, at, a=a, b=b)
        wanted = "another plant of the same split"
        raise exhausted("b_max", self.env.parameters.b_max, wanted, MOST_DRAWS, "Widen the ranges.")


class ControlPlayers(TaskPlayers["OptimalControl"]):
    """Who plays the plant."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[ControlPlay, PlantBelief]:
        task = self.env._spec(pack.tasks[0])
        return ControlPlay(self.env.wording, goes_by_earlier=not teaches), PlantBelief(task.a, task.b)


class OptimalControl(TaskWorld[ControlTask]):
    """Bring a point to a target and to rest there, with one formula for the control; reward 1 / (1 + L), -0.1 if unreadable.

    Solved means a reward of 0.5 or more. The reference's three levels are these parameters (the defaults are its hard one):

        level    horizon   start_max   speed_max   target_max
        easy           8         1.0         0.5          3.0
        medium        12         2.0         1.0          5.0
        hard          12         2.0         1.5          8.0

    Args:
        teacher: How good the demonstrations of the warm start are.
        parameters: Those of `ControlParameters`, which documents them.
    """

    companions = (ControlRules, MemoryVariants, ControlPlayers, *TaskWorld.companions)

    task_type = ControlTask
    traits = Traits(reward_range=(-0.1, 1.0))
    max_turns = 1

    def __init__(self, teacher: TeacherDials = TeacherDials(), **parameters: Any) -> None:  # noqa: B008  (frozen)
        self.parameters = ControlParameters(**parameters)
        self.name, self.teacher = self.parameters.name, teacher
        natural = self.parameters.protocol == "natural"
        self.wording = NaturalControl(self.parameters) if natural else CompactControl(self.parameters)
        self._earlier: Earlier | None = None
        """The last law of the pack that ran to the end, where the world carries it over."""
        self._start(ControlTask(a=1.0, b=1.0, x=0.0, v=0.0, target_x=1.0, horizon=self.parameters.horizon))

    @property
    def rules(self) -> str:
        return self.wording.rules

    @property
    def success(self) -> bool:
        return self._run is not None and self._run.reward >= SOLVED

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """One pair (a, b) of the split, and for every task a start and a target."""
        world_seed = derive_seed("control pack", self.name, str(split), seed, index)
        hidden = self.parameters.hidden(random.Random(world_seed), split)
        specs = (self.parameters.task(derive_seed(world_seed, n), hidden) for n in range(num_tasks))
        return self._pack(split, index, seed, world_seed, specs)

    def _acted(self, action: str) -> str:
        text, self._complaint = self.wording.formula_in(action)
        if self._complaint:
            return "malformed"
        try:
            formula = compile_expression(text, NAMES)
        except ExpressionError as error:
            self._complaint = str(error)
            return "malformed"
        task = self._task
        try:
            run = self._run = run_formula(task, formula)
        except ActionError as error:
            self._failed_at, self._complaint = error.step, str(error)
            return "failed"
        if self.parameters.world_memory:
            miss_x = run.xs[-1] - task.target_x
            self._earlier = Earlier(
                formula=formula.text, task=task, reward=run.reward, miss_x=miss_x, miss_v=run.vs[-1]
            )
        return "ran"

    def _feedback(self) -> str:
        if self._outcome == "malformed":
            return self.wording.unreadable(self._complaint)
        if self._run is None:
            return self.wording.failed(self._failed_at, self._complaint)
        return self.wording.finished(self._task, self._run)

    def _reward(self) -> float:
        if self._outcome == "malformed":
            return self.traits.least
        return 0.0 if self._run is None else self._run.reward

    def _start(self, task: ControlTask) -> None:
        self._task, self._failed_at = task, 0
        self._run: PlantRun | None = None
        before = self._earlier.task if self._earlier else task
        if (before.a, before.b) != (task.a, task.b):
            self._earlier = None

    def _observed(self) -> str:
        return self.wording.observation(self._task, self._earlier)
