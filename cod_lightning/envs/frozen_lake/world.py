"""FrozenLake-Obscure: a lake whose four action codes mean the four directions in a hidden order, the same for a whole pack.

Isolated tasks are partly a guess; a policy that notes which code went where walks straight to the goal in the tasks that
follow. Dynamics are gymnasium's FrozenLake (not slippery). Source of the world: arXiv 2606.20002; differences: splits are
disjoint by construction, the feedback can name directions, and maps are accepted by breadth-first search with exactly
`max_shortest_path`. (The reference's depth-first search turns some good maps away, and lets ways that are one move longer pass;
rewards of the reference policies agree within 0.02.)
"""

import random
from typing import Any

from cod_lightning.envs.answers import code_of
from cod_lightning.envs.base import Reference, TextPolicy
from cod_lightning.envs.facts import QuotingDials
from cod_lightning.envs.frozen_lake.lake import (
    MAPPINGS,
    Lake,
    LakeParameters,
    LakeTask,
    draw_task,
    neighbour,
    other_mapping,
)
from cod_lightning.envs.frozen_lake.policies import LakeOracle, LakePlay, LakePlayer, ScriptedLakePolicy
from cod_lightning.envs.frozen_lake.wording import CompactLake, LakeView, LakeWording, LastMove, NaturalLake
from cod_lightning.envs.task_world import TaskPlayers, TaskRules, TaskWorld
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split


class LakeRules(TaskRules["FrozenLakeObscure"]):
    """What packs of the lake hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Another mapping from task `at` on; lakes stay."""
        old, change = self.env._spec(pack.tasks[at]).mapping, derive_seed("frozen lake change", pack.id, seed)
        return self.env._with(pack, at, mapping=other_mapping(self.env.parameters, old, change))

    def hidden_rule(self, pack: Pack) -> str:
        """What the codes mean."""
        return " ".join(self.env._spec(pack.tasks[0]).mapping)


class LakePlayers(TaskPlayers["FrozenLakeObscure"]):
    """Who plays the lake."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[LakePlay, dict[int, str]]:
        """For random play and a teacher, which knows the mapping of the first task, if it changes."""
        return LakePlay(self.env.wording, self.env.teacher), dict(
            enumerate(self.env._spec(pack.tasks[0]).mapping, start=1)
        )

    def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
        if kind is Reference.RANDOM:
            return super().reference(kind, pack)
        penalty = self.env.parameters.length_penalty
        player = LakePlayer(wording=self.env.wording, max_turns=self.env.max_turns, length_penalty=penalty)
        if kind is Reference.SCRIPTED:
            return ScriptedLakePolicy(player)
        return LakeOracle.of(player, map(self.env._spec, pack.tasks))


class FrozenLakeObscure(TaskWorld[LakeTask]):
    """Cross a lake with action codes whose meaning is hidden and shared by a pack.

    Args:
        teacher: How good the demonstrations of the warm start are.
        parameters: Those of `LakeParameters`, which documents them.
    """

    companions = (LakeRules, LakePlayers, *TaskWorld.companions)

    task_type = LakeTask
    wins = ("goal",)

    def __init__(self, teacher: QuotingDials = QuotingDials(), **parameters: Any) -> None:  # noqa: B008  (frozen)
        self.parameters = p = LakeParameters(**parameters)
        self.max_turns, self.teacher, self.name = p.max_turns, teacher, p.name
        self.wording: LakeWording = (
            NaturalLake(p.names_effects, p.names_place)
            if p.protocol == "natural"
            else CompactLake(p.fixed_size, p.names_effects, p.size_max)
        )
        self._start(LakeTask(rows=("SG", "FF"), mapping=MAPPINGS[0]))

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        world_seed = derive_seed("frozen lake pack", self.name, str(split), seed, index)
        mapping = MAPPINGS[random.Random(world_seed).choice(self.parameters.allowed)]
        specs = (draw_task(self.parameters, derive_seed(world_seed, n), split, mapping) for n in range(num_tasks))
        return self._pack(split, index, seed, world_seed, specs)

    def _acted(self, action: str) -> str:
        code, self._complaint = code_of(action, "Direction", 4)
        if not code:
            return "malformed"
        view = self._view
        direction, before = self._task.mapping[code - 1], view.position
        after = neighbour(before, direction, view.lake.size)
        moves = (*view.moves, LastMove(code, direction, before, after))
        self._view = LakeView(view.lake, after, view.turn + 1, view.max_turns, moves)
        letter = self._task.rows[self._view.position[0]][self._view.position[1]]
        if letter in "GH":
            return "goal" if letter == "G" else "hole"
        return "late" if self._view.turn == self.max_turns else ""

    def _start(self, task: LakeTask) -> None:
        lake, self._task = Lake(task.rows), task
        self._view = LakeView(lake=lake, position=lake.find("S"), turn=0, max_turns=self.max_turns, moves=())

    def _observed(self) -> str:
        return self.wording.observation(self._view)

    def _feedback(self) -> str:
        return self.wording.feedback(self._outcome, self._view, self._complaint)

    def _reward(self) -> float:
        return 1 - self.parameters.length_penalty * self._view.turn / self.max_turns if self.success else 0.0
