"""FrozenLake-Obscure: a lake whose four action codes mean the four directions in a hidden order, the same for a whole pack.

Isolated tasks are partly a guess; a policy that notes which code went where walks straight to the goal in the tasks that
follow. Dynamics are gymnasium's FrozenLake (not slippery). Source of the world: arXiv 2606.20002; differences: splits are
disjoint by construction, the feedback can name directions, and maps are accepted by breadth-first search with exactly
`max_shortest_path`. (The reference's depth-first search turns some good maps away, and lets ways that are one move longer pass;
rewards of the reference policies agree within 0.02.)
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from cod_lightning.envs.base import Demonstrator, Reference, Stepped, TextPolicy, text_space
from cod_lightning.envs.facts import QuotingDials
from cod_lightning.envs.frozen_lake.lake import MAPPINGS, Lake, neighbour
from cod_lightning.envs.frozen_lake.packs import LakeTask, draw_labels, draw_mapping, draw_task, other_mappings
from cod_lightning.envs.frozen_lake.parameters import LakeParameters
from cod_lightning.envs.frozen_lake.policies import (
    LakeOracle,
    LakePlay,
    LakePlayer,
    ManyLakesTeacher,
    ScriptedLakePolicy,
)
from cod_lightning.envs.frozen_lake.wording import CompactLake, LakeView, LakeWording, LastMove, NaturalLake
from cod_lightning.envs.players import RandomPlayer, Teacher
from cod_lightning.envs.task_world import TaskPlayers, TaskRules, TaskWorld
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split


class LakeRules(TaskRules["FrozenLakeObscure"]):
    """What packs of the lake hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Another mapping from task `at` on, for each task another one where every task has its own; lakes and labels stay."""
        old = [self.env._spec(task) for task in pack.tasks[at:]]
        change = derive_seed("frozen lake change", pack.id, seed)
        new = other_mappings(self.env.parameters, [spec.mapping for spec in old], change)
        return self.env._with_specs(pack, at, map(lambda spec, mapping: replace(spec, mapping=mapping), old, new))

    def hidden_rule(self, pack: Pack) -> str:
        """What the codes mean; the pack's id where every task has codes of its own."""
        own = self.env.parameters.mapping_scope == "per_task"
        return pack.id if own else " ".join(self.env._spec(pack.tasks[0]).mapping)


class LakePlayers(TaskPlayers["FrozenLakeObscure"]):
    """Who plays the lake."""

    def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
        wording = self.env._worded(self.env._spec(pack.tasks[0]))
        player = LakePlayer(
            wording=wording, max_turns=self.env.max_turns, length_penalty=self.env.parameters.length_penalty
        )
        if kind is Reference.RANDOM:
            return RandomPlayer(LakePlay(wording, self.env.teacher))
        if kind is Reference.SCRIPTED:
            return ScriptedLakePolicy(player, remembers=self.env.parameters.mapping_scope != "per_task")
        return LakeOracle.of(player, map(self.env._spec, pack.tasks))

    def demonstrator(self, pack: Pack) -> Demonstrator:
        """A teacher that knows the mapping of this pack (of its first task, if it changes).

        Where every task has a mapping of its own, earlier tasks left contexts about any of them, and so does the teacher.
        """
        first = self.env._spec(pack.tasks[0])
        play, truth = LakePlay(self.env._worded(first), self.env.teacher), _facts(first.mapping)
        if self.env.parameters.mapping_scope != "per_task" or len(self.env.parameters.allowed) == 1:
            return Teacher(play, truth, self.env.teacher)
        return ManyLakesTeacher(
            play, truth, self.env.teacher, [_facts(MAPPINGS[i]) for i in self.env.parameters.allowed]
        )


class FrozenLakeObscure(TaskWorld[LakeTask]):
    """Cross a lake with action codes whose meaning is hidden and shared by a pack.

    Args:
        teacher: How good the demonstrations of the warm start are.
        parameters: Those of `LakeParameters`, which documents them.
    """

    companions = (LakeRules, LakePlayers, *TaskWorld.companions)

    observation_space = action_space = text_space("√")
    task_type = LakeTask
    wins = ("goal",)

    def __init__(self, teacher: QuotingDials = QuotingDials(), **parameters: Any) -> None:  # noqa: B008  (frozen)
        self.parameters = LakeParameters(**parameters)
        teacher.check()
        self.max_turns, self.teacher, self.name = self.parameters.max_turns, teacher, self.parameters.name
        self._start(LakeTask(rows=("SG", "FF"), mapping=MAPPINGS[0]))

    @property
    def rules(self) -> str:
        return self.wording.rules(self.max_turns)

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        world_seed = derive_seed("frozen lake pack", self.name, str(split), seed, index)
        labels = draw_labels(self.parameters, world_seed)
        p, seeds = self.parameters, [derive_seed(world_seed, n) for n in range(num_tasks)]
        drawn = (draw_task(p, own, split, draw_mapping(p, world_seed, own), labels) for own in seeds)
        return self._pack(split, index, seed, world_seed, drawn)

    def _drawn(self, seed: int) -> LakeTask:
        mapping = draw_mapping(self.parameters, seed, seed)
        return draw_task(self.parameters, seed, None, mapping, draw_labels(self.parameters, seed))

    def step(self, action: str) -> Stepped:
        assert not self._outcome, "the task is over; call reset()"
        code, complaint = self._task.labels.code_of(action)
        if not code and (self._warned or not self.parameters.lenient):
            return self._end("malformed", complaint)
        if code:
            view = self._view
            direction, before = self._task.mapping[code - 1], view.position
            after = neighbour(before, direction, view.lake.size)
            moves = (*view.moves, LastMove(code, direction, before, after))
            self._view = LakeView(view.lake, after, view.turn + 1, view.max_turns, moves)
        else:
            self._warned = True
            self._view = structs.replace(self._view, turn=self._view.turn + 1, complaint=complaint)
        letter = self._task.rows[self._view.position[0]][self._view.position[1]]
        if letter in "GH":
            return self._end("goal" if letter == "G" else "hole")
        if self._view.turn == self.max_turns:
            return self._end("late")
        return self._observed(), 0.0, False, False, {}

    def render(self) -> str:
        return NaturalLake(self._task.labels).drawn(self._view)

    def _start(self, task: LakeTask) -> None:
        lake = Lake(task.rows)
        self._task, self._outcome, self._warned = task, "", False
        self.wording = self._worded(task)
        self._view = LakeView(lake=lake, position=lake.find("S"), turn=0, max_turns=self.max_turns, moves=())

    def _observed(self) -> str:
        return self.wording.observation(self._view, self.parameters.names_effects)

    def _end(self, outcome: str, complaint: str = "") -> Stepped:
        self._outcome = outcome
        penalty = self.parameters.length_penalty * self._view.turn / self.max_turns
        words = self.wording.feedback(outcome, self._view, self.parameters.names_effects, complaint)
        return self._ended(words, max(0.0, 1 - penalty) if outcome == "goal" else 0.0)

    def _worded(self, task: LakeTask) -> LakeWording:
        p = self.parameters
        if p.protocol == "natural":
            return NaturalLake(task.labels, p.mapping_scope == "per_task", p.names_place)
        return CompactLake(p.fixed_size, p.lenient, p.names_effects, p.size_max)


def _facts(mapping: Sequence[str]) -> dict[int, str]:
    return dict(enumerate(mapping, start=1))
