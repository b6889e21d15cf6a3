"""Alchemy-Random: a hidden graph of recipes, the same for a whole pack; each task asks for another of its elements.

A note of which pairs gave what, and which gave nothing, lets a policy make later targets without searching. Source of the world:
arXiv 2606.20002. Differences: targets come again only after all were asked for, and do not depend on the pack's length; with
limited materials every target can be made, as its plan with every copy of every intermediate is what the stock is counted
by; a task ends when its target can no longer be made, unless `end_when_dead` is false; splits are disjoint by construction.
"""

from typing import Any

from cod_lightning.envs.alchemy.graph import book_of, levels, slots_of, way_to
from cod_lightning.envs.alchemy.notes import Facts
from cod_lightning.envs.alchemy.parameters import AlchemyParameters
from cod_lightning.envs.alchemy.plan import pair_of
from cod_lightning.envs.alchemy.policies import AlchemyPlay
from cod_lightning.envs.alchemy.tasks import AlchemyTask, draw_tasks, redrawn
from cod_lightning.envs.alchemy.wording import AlchemyView, AlchemyWording, Combination, CompactAlchemy, NaturalAlchemy
from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.task_world import TaskPlayers, TaskRules, TaskWorld
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split, Task


class AlchemyRules(TaskRules["Alchemy"]):
    """What packs of alchemy hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Other recipes among the same elements from task `at` on; targets stay, and stocks wherever they suffice."""
        change, old = derive_seed("alchemy change", pack.id, seed), [self.env._spec(task) for task in pack.tasks[at:]]
        return self.env._with_specs(pack, at, redrawn(self.env.parameters, change, pack.split, old))


class AlchemyPlayers(TaskPlayers["Alchemy"]):
    """Who plays alchemy."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[AlchemyPlay, Facts]:
        """Recipes; in compact words, where a note has a word for every pair, also the failures."""
        task, p = self.env._spec(pack.tasks[0]), self.env.parameters
        play, truth = AlchemyPlay(self.env.wording, levels(task.tiers)), book_of(task.recipes)
        if not p.compact:
            return play, truth
        slots = slots_of(task.tiers, p.max_tier_gap, p.cross_tier_max > 0)
        return play, {**dict.fromkeys(slots, ""), **truth}


class Alchemy(TaskWorld[AlchemyTask]):
    """Make a target by combining elements two by two; which pairs are recipes is hidden and shared by a pack.

    Defaults are the paper's easy setting.

    Args:
        teacher: How good the demonstrations of the warm start are.
        parameters: Those of `AlchemyParameters`, which documents them.
    """

    companions = (AlchemyRules, AlchemyPlayers, *TaskWorld.companions)

    task_type = AlchemyTask

    def __init__(self, teacher: TeacherDials = TeacherDials(), **parameters: Any) -> None:  # noqa: B008  (frozen)
        self.parameters = p = AlchemyParameters(**parameters)
        self.name, self.max_turns, self.teacher = p.name, p.max_turns, teacher
        self.wording: AlchemyWording = CompactAlchemy(p) if p.compact else NaturalAlchemy(p)
        self._start(_EXAMPLE)

    @property
    def rules(self) -> str:
        return self.wording.rules(self._task.tiers)

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """A graph of the split, and a target (with limited materials also a stock) for every task."""
        world_seed = derive_seed("alchemy pack", self.parameters.structure, str(split), seed, index)
        specs = draw_tasks(self.parameters, world_seed, split, num_tasks)
        targets = [spec.target for spec in specs]
        tasks = tuple(
            Task(id=str(n), seed=derive_seed(world_seed, "task", n), spec=spec, repeat=spec.target in targets[:n])
            for n, spec in enumerate(specs)
        )
        return Pack(id=f"{self.name}/{split}/{seed}/{index}", split=split, world_seed=world_seed, tasks=tasks)

    def _observed(self) -> str:
        return self.wording.observation(self._view)

    def _acted(self, action: str) -> str:
        names, self._complaint = _names_in(action)
        if self._complaint:
            return "malformed"
        view = self._view
        view.turn += 1
        view.last = self._combined(*names)
        if view.have.get(self._task.target):
            return "win"
        if self._is_dead():
            return "dead"
        return "late" if view.turn == self.max_turns else ""

    def _start(self, task: AlchemyTask) -> None:
        self._task = task
        self._view = AlchemyView(task=task, have=dict.fromkeys(task.tiers[0], task.stock or 1))

    def _combined(self, first: str, second: str) -> Combination:
        """Combine two named elements if they are at hand."""
        pair, have = pair_of(first, second), self._view.have
        for name in (first, second):
            if have.get(name, 0) < (2 if self.parameters.limited and first == second else 1):
                return Combination(pair=("", ""), lacking=name[:40])
        result = book_of(self._task.recipes).get(pair, "")
        if self.parameters.limited:
            for name in pair:
                have[name] -= 1
        if result:
            have[result] = have.get(result, 0) + 1 if self.parameters.limited else 1
        self._view.tried = (*self._view.tried, (pair, result))
        return Combination(pair=pair, result=result)

    def _is_dead(self) -> bool:
        if not self.parameters.limited:
            return False
        task, have = self._task, self._view.have
        if sum(have.values()) < 2:
            return True
        plan = way_to(task.recipes, task.tiers, task.target, have, consume=True, most=self.max_turns)
        return self.parameters.end_when_dead and plan is None

    def _feedback(self) -> str:
        return self.wording.feedback(self._outcome, self._view, self._complaint)

    def _reward(self) -> float:
        return 1 - self.parameters.length_penalty * self._view.turn / self.max_turns if self.success else 0.0


_EXAMPLE = AlchemyTask(tiers=(("a", "b"), ("k",)), decoys=(), recipes=(("a", "b", "k"),), target="k", stock=0)


def _names_in(response: str) -> tuple[tuple[str, str], str]:
    """((first, second), "") in small letters, or (("", ""), which rule was broken).

    >>> _names_in("<answer>Abc + def</answer>")
    (('abc', 'def'), '')
    >>> _names_in("<answer>abc</answer>")
    (('', ''), 'the answer is not two names joined by one +')
    """
    answer, complaint = answer_of(response)
    if complaint:
        return ("", ""), complaint
    names = [part.strip().lower() for part in answer.split("+", 2)]
    if len(names) != 2 or not all(names):
        return ("", ""), "the answer is not two names joined by one +"
    return (names[0], names[1]), ""
