"""Grid navigation: reach a target with an exact number of rook moves over a map of costs that a pack shares.

A context that names the cheap parts gives better routes in later tasks. Source of the world: arXiv 2606.20002; differences:
splits are disjoint by construction, and the observed map can start empty in every task (`world_memory: false`), so that only
the context carries it.
"""

import random
import re
from typing import Any

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.grid.chart import Chart
from cod_lightning.envs.grid.draws import GridTask, GridView, draw_map, draw_task, prior_of
from cod_lightning.envs.grid.field import Cell
from cod_lightning.envs.grid.parameters import GridParameters
from cod_lightning.envs.grid.policies import GridPlay
from cod_lightning.envs.grid.rook import entered
from cod_lightning.envs.grid.wording import CompactGrid, GridWording, NaturalGrid
from cod_lightning.envs.task_world import MemoryVariants, TaskPlayers, TaskRules, TaskWorld
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split

_MOST_LETTERS = 60
_ANSWER = re.compile(r"(-?[0-9A-Za-z]{1,9})\s*,\s*(-?[0-9A-Za-z]{1,9})")


class GridRules(TaskRules["GridNavigation"]):
    """What packs of the grid hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Another map of the same side and split from task `at` on; the tasks stay. A kept observed map starts anew there."""
        old = self.env._spec(pack.tasks[at]).costs
        costs = draw_map(self.env.parameters, derive_seed("grid change", pack.id, seed), pack.split, len(old), old)
        return self.env._with(pack, at, costs=costs)


class GridPlayers(TaskPlayers["GridNavigation"]):
    """Who plays the grid."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[GridPlay, dict[Cell, int]]:
        task = self.env._spec(pack.tasks[0])
        play = GridPlay(self.env.wording, prior_of(self.env.parameters), len(task.costs), drops=not teaches)
        return play, {(row, column): cost for row, line in enumerate(task.costs) for column, cost in enumerate(line)}


class GridNavigation(TaskWorld[GridTask]):
    """Move like a rook to a target, with exactly as many moves as the task says, over cells of hidden cost.

    The reward is 1 - (mean cost of entered cells) / 100 on the target after the last move, else 0. `success` is True on the target
    after the last move, whatever the loss. A task never runs out of turns: it ends with its last move.

    Args:
        teacher: How good the demonstrations of the warm start are.
        parameters: Those of `GridParameters`, which documents them.
    """

    companions = (MemoryVariants, GridRules, GridPlayers, *TaskWorld.companions)

    task_type = GridTask
    wins = ("goal",)

    def __init__(self, teacher: TeacherDials = TeacherDials(), **parameters: Any) -> None:  # noqa: B008  (frozen)
        self.parameters = GridParameters(**parameters)
        self.name, self.teacher = self.parameters.name, teacher
        self.max_turns = self.parameters.rounds_max
        rendering = NaturalGrid if self.parameters.protocol == "natural" else CompactGrid
        self.wording: GridWording = rendering(self.parameters)
        self._chart: Chart | None = None
        self._start(self._drawn(0))

    @property
    def rules(self) -> str:
        return self.wording.rules(self._view.task)

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """One map, and a start, a target and a number of moves for every task. Of the split are hills; among lanes, the tasks."""
        world_seed = derive_seed("grid pack", self.name, str(split), seed, index)
        side = random.Random(world_seed).randint(self.parameters.side_min, self.parameters.side_max)
        costs = draw_map(self.parameters, world_seed, split, side)
        rngs = (random.Random(derive_seed(world_seed, n)) for n in range(num_tasks))
        specs = (draw_task(self.parameters, rng, costs, split) for rng in rngs)
        return self._pack(split, index, seed, world_seed, specs)

    def _acted(self, action: str) -> str:
        view = self._view
        cell, self._complaint = self._read(action)
        if cell is None:
            return "malformed"
        view.path = entered(view.here, cell)
        view.shown = view.chart.reveal(view.path, self.parameters.reveal_radius)
        view.spent += sum([view.task.costs[row][column] for row, column in view.path])
        view.count += len(view.path)
        view.here = cell
        view.done += 1
        if view.done < view.task.rounds:
            return ""
        return "goal" if cell == view.task.goal else "miss"

    def _start(self, task: GridTask) -> None:
        chart = self._chart
        keeps = self.parameters.world_memory
        if chart is None or not keeps or chart.costs != task.costs:
            self._chart = chart = Chart(task.costs)
        self._view = GridView(task=task, chart=chart, here=task.start, path=[])

    def _observed(self) -> str:
        return self.wording.observation(self._view)

    def _read(self, action: str) -> tuple[Cell | None, str]:
        """(cell, "") or (None, which rule was broken)."""
        answer, complaint = answer_of(action)
        if complaint:
            return None, complaint
        match = _ANSWER.fullmatch(answer) if len(answer) <= _MOST_LETTERS else None
        if match is None:
            return None, "the answer is not row,column"
        here, side = self._view.here, len(self._view.task.costs)
        row, column = (int(name) if name.isdigit() else side for name in match.groups())
        if max(row, column) >= side:
            return None, "there is no such cell"
        cell = row, column
        if cell == here:
            return None, "you stand on that cell"
        if cell[0] != here[0] and cell[1] != here[1]:
            return None, "that is not in your row or column"
        return cell, ""

    def _feedback(self) -> str:
        return self.wording.feedback(self._outcome, self._view, self._complaint)

    def _reward(self) -> float:
        return 1 - self._view.loss if self.success else 0.0
