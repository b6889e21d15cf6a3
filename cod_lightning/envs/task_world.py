"""What worlds with tasks of one kind share: packs, how a task starts and ends, and the players of the world."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar, cast

from cod_lightning.envs.base import (
    Demonstrator,
    HiddenRules,
    Players,
    Reference,
    Stepped,
    TextEnv,
    TextPolicy,
    Variants,
    Vocabulary,
    beside,
    text_space,
)
from cod_lightning.envs.players import OraclePlayer, Play, RandomPlayer, ScriptedPlayer, Teacher
from cod_lightning.seeds import derive_seed
from cod_lightning.types import EpisodeStatus, Pack, Split, Task

S = TypeVar("S")
"""What a world needs to know of a task."""


W = TypeVar("W", bound="TaskWorld[Any]")


class TaskPlayers(Players[W]):
    """Players by a `Play`: random, scripted, oracle, and a teacher as good as the world's `teacher`."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[Play[Any], Any]:
        """How to play the pack, as a reference or a teacher, and its hidden rule (of the first task, if it changes)."""
        raise NotImplementedError(
            f"{type(self.env).__name__}.companions has no TaskPlayers with a play(); a warm start needs them"
        )

    def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
        play, truth = self.play(pack)
        if kind is Reference.RANDOM:
            return RandomPlayer(play)
        return ScriptedPlayer(play) if kind is Reference.SCRIPTED else OraclePlayer(play, truth)

    def demonstrator(self, pack: Pack) -> Demonstrator:
        return Teacher(*self.play(pack, teaches=True), self.env.teacher)


class TaskVocabulary(Vocabulary[W]):
    """The words of the world's `wording`, where it has a closed vocabulary."""

    def words(self) -> tuple[str, ...]:
        wording = self.env.wording
        return wording.words() if hasattr(wording, "words") else ()


class MemoryVariants(Variants[W]):
    """The world without its memory, where its parameters say whether it has one (`world_memory`)."""

    def without_world_memory(self) -> TextEnv:
        parameters = self.env.parameters
        if not parameters.world_memory:
            return self.env
        world: Any = type(self.env)
        return world(self.env.teacher, **{**vars(parameters), "world_memory": False})


class TaskRules(HiddenRules[W]):
    """What the world's oracle knows; in a world without one, the pack's id."""

    def hidden_rule(self, pack: Pack) -> str:
        players = beside(self.env, Players)
        try:
            return repr(players.play(pack)[1]) if isinstance(players, TaskPlayers) else pack.id
        except NotImplementedError:
            return pack.id


class TaskWorld(TextEnv, Generic[S]):
    """A world of tasks of one kind: what starts a task, what an answer does, and what is said at the end."""

    companions = (TaskPlayers, TaskVocabulary, TaskRules)
    observation_space = action_space = text_space()
    """Of the class, so that a copy of an environment does not copy it."""
    task_type: ClassVar[Any]
    """The class, or classes, of a task's spec."""
    wins: tuple[str, ...] = ("win",)
    """Outcomes that count as success."""
    late: str | None = "late"
    """The outcome of a task that runs out of turns; None where no task does."""
    wording: Any
    """How the world is put into words, where it is so for all tasks; with a closed vocabulary it has `words()`."""
    teacher: Any
    """How good demonstrations are."""
    parameters: Any
    """A dataclass of the world's other parameters, where it has one."""
    _outcome = ""
    """A word for how the present task ended, empty while it goes on."""
    _complaint = ""
    """What was wrong with an answer that could not be read."""

    @property
    def rules(self) -> str:
        return self.wording.rules(self.max_turns)

    @property
    def success(self) -> bool:
        return self._outcome in self.wins

    @property
    def status(self) -> EpisodeStatus:
        ends = {self.late: EpisodeStatus.TRUNCATED, "malformed": EpisodeStatus.MALFORMED}
        return ends.get(self._outcome, EpisodeStatus.COMPLETED)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`, or, without one, a task drawn from the environment's own generator."""
        super().reset(seed=seed)
        self._outcome = self._complaint = ""
        if options and "task" in options:
            self._start(self._spec(options["task"]))
        else:
            self._start(self._drawn(int(self.np_random.integers(2**62))))
        return self._observed(), {}

    def step(self, action: str) -> Stepped:
        assert not self._outcome, "the task is over; call reset()"
        self._outcome = self._acted(action)
        if not self._outcome:
            return self._observed(), 0.0, False, False, {}
        late = self._outcome == self.late
        return self._feedback(), self._reward(), not late, late, {}

    @classmethod
    def _spec(cls, task: Task) -> S:
        assert isinstance(task.spec, cls.task_type), f"task {task.id} is not of {cls.__name__}"
        return cast(S, task.spec)

    @abstractmethod
    def _start(self, task: S) -> None:
        """Begin anew with that task."""

    def _drawn(self, seed: int) -> S:
        """What `reset` starts where no task is named: the first of a training pack."""
        return self._spec(self.sample_pack(split=Split.TRAIN, index=seed, num_tasks=1).tasks[0])

    @abstractmethod
    def _observed(self) -> str:
        """What is seen of the present task."""

    @abstractmethod
    def _acted(self, action: str) -> str:
        """Read the answer and carry it out; the outcome, empty where the task goes on. `_complaint` says why it is malformed."""

    @abstractmethod
    def _feedback(self) -> str:
        """What is said after the present task, whose outcome is known."""

    def _reward(self) -> float:
        """Of the present task, whose outcome is known."""
        return float(self.success)

    def _pack(self, split: Split, index: int, seed: int, world_seed: int, specs: Iterable[S], asks: str = "") -> Pack:
        """The pack with this identity and tasks; a task's seed derives from the world's and its position.

        A task whose spec equals an earlier one, or does in the attribute `asks`, is a repeat.
        """
        specs = tuple(specs)
        asked = [getattr(spec, asks) if asks else spec for spec in specs]
        tasks = tuple(
            Task(id=str(n), seed=derive_seed(world_seed, n), spec=spec, repeat=asked[n] in asked[:n])
            for n, spec in enumerate(specs)
        )
        return Pack(id=f"{self.name}/{split}/{seed}/{index}", split=split, world_seed=world_seed, tasks=tasks)

    def _with(self, pack: Pack, at: int, **fields: Any) -> Pack:
        """The pack whose tasks hold something else from task `at` on."""
        return self._with_specs(pack, at, [replace(cast(Any, self._spec(t)), **fields) for t in pack.tasks[at:]])

    @staticmethod
    def _with_specs(pack: Pack, at: int, specs: Iterable[S]) -> Pack:
        """The pack whose tasks have these specs from task `at` on."""
        later = (replace(task, spec=spec) for task, spec in zip(pack.tasks[at:], specs, strict=True))
        return replace(pack, tasks=(*pack.tasks[:at], *later))
