"""FrozenLake-Obscure: a lake whose four action codes mean the four directions in a hidden order, the same for a whole pack.

Isolated tasks are partly a guess; whoever writes down which code went where walks straight to the goal in the tasks that
follow. Dynamics are gymnasium's FrozenLake (not slippery). Source of the world: arXiv 2606.20002; differences: maps are
accepted by breadth-first search, splits are disjoint by construction, and the feedback can name directions.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

from cod_lightning.envs.answers import code_of
from cod_lightning.envs.base import Demonstrator, Reference, TextEnv, TextPolicy, text_space
from cod_lightning.envs.checks import check_choice, check_share, check_turns
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.frozen_lake.lake import DIRECTIONS, Lake, distances, draw_lake, split_of
from cod_lightning.envs.frozen_lake.policies import LakeOracle, LakeTeacher, RandomLakePolicy, ScriptedLakePolicy
from cod_lightning.envs.frozen_lake.wording import CompactLake, LakeView, LakeWording, LastMove, NaturalLake
from cod_lightning.errors import ConfigError
from cod_lightning.seeds import derive_seed
from cod_lightning.types import EpisodeStatus, Pack, Split, Task

MAPPINGS = tuple(itertools.permutations(("down", "right", "up", "left")))
"""All 24 meanings of codes 1-4, in the order of itertools over the reference's base order."""
_MOST_DRAWS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTask:
    """One lake, and what the codes mean."""

    rows: tuple[str, ...]
    mapping: tuple[str, ...]
    """Directions of codes 1, 2, 3, 4."""


class FrozenLakeObscure(TextEnv):
    """Cross a lake with action codes whose meaning is hidden and shared by a pack.

    Args:
        size_min: Smallest side of a map, 3 to 8.
        size_max: Largest side of a map, 3 to 8.
        frozen_p_min: Smallest probability that a tile is frozen.
        frozen_p_max: Largest probability that a tile is frozen.
        max_turns: Steps per task.
        max_shortest_path: Maps whose shortest safe path is longer are redrawn.
        min_shortest_path: Maps whose shortest safe path is shorter are redrawn.
        length_penalty: A success with t turns is worth 1 - length_penalty * t / max_turns.
        feedback: Whether observations name the direction moved (effect) or only the cells (positions, as in the paper).
            With compact words, positions leave nothing to note: an update prompt then shows no code.
        protocol: Sentences for language models (natural) or fused words for tiny policies (compact).
        mappings: Which of the 24 mappings may be drawn, by index; null for all.
        teacher: How good the demonstrations of the warm start are.
    """

    observation_space = action_space = text_space("√")
    """Of the class, so that a copy of an environment does not copy it."""

    def __init__(
        self,
        size_min: int = 4,
        size_max: int = 5,
        frozen_p_min: float = 0.6,
        frozen_p_max: float = 0.7,
        max_turns: int = 8,
        max_shortest_path: int = 6,
        min_shortest_path: int = 1,
        length_penalty: float = 0.1,
        feedback: Literal["effect", "positions"] = "effect",
        protocol: Literal["natural", "compact"] = "natural",
        mappings: Sequence[int] | None = None,
        teacher: TeacherDials = TeacherDials(),  # noqa: B008  (frozen)
    ) -> None:
        self.size_min, self.size_max = size_min, size_max
        self.frozen_p_min, self.frozen_p_max = frozen_p_min, frozen_p_max
        self.max_turns, self.length_penalty, self.feedback = max_turns, length_penalty, feedback
        self.min_shortest_path, self.max_shortest_path = min_shortest_path, max_shortest_path
        self.mappings = tuple(range(24)) if mappings is None else tuple(mappings)
        self.teacher, self.protocol = teacher, protocol
        self._check()
        fixed = size_max if size_min == size_max else None
        self.wording: LakeWording = NaturalLake() if protocol == "natural" else CompactLake(fixed)
        drawn = "" if mappings is None else "-m" + ".".join(map(str, self.mappings))
        self.name = (
            f"frozen_lake-{size_min}-{size_max}-p{frozen_p_min:g}-{frozen_p_max:g}"
            f"-path{min_shortest_path}-{max_shortest_path}{drawn}"
        )
        self._task = LakeTask(rows=("SG", "FF"), mapping=MAPPINGS[0])
        self._restart()

    # ------------------------------------------------------------------ what a policy is told

    @property
    def rules(self) -> str:
        """System text."""
        return self.wording.rules(self.max_turns)

    @property
    def success(self) -> bool:
        """True on the goal."""
        return self._outcome == "goal"

    @property
    def status(self) -> EpisodeStatus:
        """Completed on goal and hole, truncated out of steps, malformed for an unreadable answer."""
        ends = {"late": EpisodeStatus.TRUNCATED, "malformed": EpisodeStatus.MALFORMED}
        return ends.get(self._outcome, EpisodeStatus.COMPLETED)

    def words(self) -> tuple[str, ...]:
        """The compact vocabulary."""
        return self.wording.words(self.size_max)

    # ------------------------------------------------------------------ packs

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """One mapping, and a lake of the split for every task."""
        world_seed = derive_seed("frozen lake pack", self.name, str(split), seed, index)
        mapping = MAPPINGS[random.Random(world_seed).choice(self.mappings)]
        tasks = tuple(
            Task(id=str(n), seed=(task_seed := derive_seed(world_seed, n)), spec=self._draw(task_seed, split, mapping))
            for n in range(num_tasks)
        )
        return Pack(id=f"{self.name}/{split}/{seed}/{index}", split=split, world_seed=world_seed, tasks=tasks)

    def _draw(self, seed: int, split: Split | None, mapping: tuple[str, ...]) -> LakeTask:
        rng = random.Random(seed)
        size = rng.randint(self.size_min, self.size_max)
        for _ in range(_MOST_DRAWS):
            lake = draw_lake(rng, size, rng.uniform(self.frozen_p_min, self.frozen_p_max))
            path = distances(lake).get(lake.find("S"), 0)
            if self.min_shortest_path <= path <= self.max_shortest_path and split in (None, split_of(lake)):
                return LakeTask(rows=lake.rows, mapping=mapping)
        raise ConfigError(
            "data.env.min_shortest_path",
            self.min_shortest_path,
            f"a path length that a lake of size {size} has; none was found in {_MOST_DRAWS} maps",
            "Lower it, or raise data.env.size_min or data.env.max_shortest_path.",
        )

    # ------------------------------------------------------------------ gymnasium

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`, or, without one, a lake drawn from the environment's own generator."""
        super().reset(seed=seed)
        if options and "task" in options:
            self._task = _spec(options["task"])
        else:
            own = int(self.np_random.integers(2**62))
            self._task = self._draw(own, None, MAPPINGS[random.Random(own).choice(self.mappings)])
        self._restart()
        return self.wording.observation(self._view, self.feedback == "effect"), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Read the answer, move, and tell what happened."""
        assert not self._outcome, "the task is over; call reset()"
        code, complaint = code_of(action, "Direction", 4)
        if not code:
            return self._end("malformed", complaint)
        self._move(code)
        letter = self._task.rows[self._view.position[0]][self._view.position[1]]
        if letter in "GH":
            return self._end("goal" if letter == "G" else "hole")
        if self._view.turn == self.max_turns:
            return self._end("late")
        return self.wording.observation(self._view, self.feedback == "effect"), 0.0, False, False, {}

    def render(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The lake as text, the player on it."""
        return NaturalLake().drawn(self._view)

    def _restart(self) -> None:
        lake = Lake(self._task.rows)
        self._outcome = ""
        self._view = LakeView(lake=lake, position=lake.find("S"), turn=0, max_turns=self.max_turns, moves=())

    def _move(self, code: int) -> None:
        before, size = self._view.position, self._view.lake.size
        direction = self._task.mapping[code - 1]
        state = _transitions(self._task.rows)[before[0] * size + before[1]][DIRECTIONS.index(direction)]
        after = divmod(state, size)
        move = LastMove(code, direction, before, after)
        self._view = replace(self._view, position=after, turn=self._view.turn + 1, moves=(*self._view.moves, move))

    def _end(self, outcome: str, complaint: str = "") -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._outcome = outcome
        reward = 1 - self.length_penalty * self._view.turn / self.max_turns if outcome == "goal" else 0.0
        words = self.wording.feedback(outcome, self._view, self.feedback == "effect", complaint)
        return words, max(0.0, reward), outcome != "late", outcome == "late", {}

    # ------------------------------------------------------------------ policies

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Another mapping from task `at` on; the lakes stay."""
        old = _spec(pack.tasks[at]).mapping
        others = [MAPPINGS[i] for i in self.mappings if MAPPINGS[i] != old]
        if not others:
            raise ConfigError("data.env.mappings", self.mappings, "two or more, for a rule that changes", "Add one.")
        mapping = random.Random(derive_seed("frozen lake change", pack.id, seed)).choice(others)
        return replace(pack, tasks=tuple(_mapped(t, mapping) if n >= at else t for n, t in enumerate(pack.tasks)))

    def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
        """Random, scripted, or told the mapping."""
        if kind is Reference.RANDOM:
            return RandomLakePolicy(self.wording)
        if kind is Reference.SCRIPTED:
            return ScriptedLakePolicy(self.wording)
        return LakeOracle(self.wording, _truth(pack))

    def demonstrator(self, pack: Pack) -> Demonstrator:
        """A teacher that knows this pack's mapping."""
        return LakeTeacher(self.wording, _truth(pack), self.teacher)

    def _check(self) -> None:
        if not 3 <= self.size_min <= self.size_max <= 8:
            raise ConfigError(
                "data.env.size_max",
                self.size_max,
                f"3 <= size_min ({self.size_min}) <= size_max <= 8",
                "Choose both in 3..8.",
            )
        if not 0 < self.frozen_p_min <= self.frozen_p_max <= 1:
            raise ConfigError(
                "data.env.frozen_p_max",
                self.frozen_p_max,
                f"0 < frozen_p_min ({self.frozen_p_min}) <= frozen_p_max <= 1",
                "Use 0.6 to 0.7.",
            )
        check_turns(self.max_turns, "8 is the reference's.")
        if not 1 <= self.min_shortest_path <= self.max_shortest_path <= self.max_turns:
            raise ConfigError(
                "data.env.max_shortest_path",
                self.max_shortest_path,
                f"min_shortest_path ({self.min_shortest_path}) <= max_shortest_path <= max_turns ({self.max_turns}), since longer "
                "maps cannot be solved",
                "Lower it, or raise data.env.max_turns.",
            )
        check_share("data.env.length_penalty", self.length_penalty, "0.1 is the reference's.")
        check_choice("data.env.feedback", self.feedback, ("effect", "positions"))
        check_choice("data.env.protocol", self.protocol, ("natural", "compact"))
        known = set(self.mappings) <= set(range(24))
        if not self.mappings or not known or len(set(self.mappings)) < len(self.mappings):
            raise ConfigError(
                "data.env.mappings",
                self.mappings,
                "different indices in 0..23, at least one",
                "Leave it out for all 24.",
            )


def _spec(task: Task) -> LakeTask:
    assert isinstance(task.spec, LakeTask), f"task {task.id} is not a lake"
    return task.spec


def _mapped(task: Task, mapping: tuple[str, ...]) -> Task:
    return replace(task, spec=replace(_spec(task), mapping=mapping))


def _truth(pack: Pack) -> dict[int, str]:
    return dict(enumerate(_spec(pack.tasks[0]).mapping, start=1))


@lru_cache(maxsize=16_384)
def _transitions(rows: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """The next state for [state][action], from gymnasium's own table, which holds much more: 58 kB for an 8x8 lake."""
    table = FrozenLakeEnv(desc=list(rows), is_slippery=False).P
    return tuple(tuple(int(table[state][action][0][1]) for action in range(4)) for state in range(len(table)))
