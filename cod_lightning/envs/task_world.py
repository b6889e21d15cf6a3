"""What worlds with tasks of one kind share: how a task starts, and how it ends."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

from cod_lightning.envs.base import Stepped, TextEnv, text_space
from cod_lightning.types import EpisodeStatus, Pack, Task

S = TypeVar("S")
"""What a world needs to know of a task."""


class TaskWorld(TextEnv, Generic[S]):
    """Starts tasks, and keeps a word for how the present one ended, empty while it goes on."""

    observation_space = action_space = text_space()
    """Of the class, so that a copy of an environment does not copy it."""
    wins: tuple[str, ...] = ("win",)
    """Outcomes that count as success."""
    late: str | None = "late"
    """The outcome of a task that runs out of turns; None where no task does."""
    _outcome = ""

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
        if options and "task" in options:
            self._start(self._spec(options["task"]))
        else:
            self._start(self._drawn(int(self.np_random.integers(2**62))))
        return self._observed(), {}

    @staticmethod
    @abstractmethod
    def _spec(task: Task) -> S:
        """What a task of this world holds."""

    @abstractmethod
    def _start(self, task: S) -> None:
        """Begin anew with that task, and with no outcome."""

    @abstractmethod
    def _drawn(self, seed: int) -> S:
        """A task of any split."""

    @abstractmethod
    def _observed(self) -> str:
        """What is seen of the present task."""

    def _ended(self, words: str, reward: float) -> Stepped:
        """The last step of the present task, whose outcome is known."""
        late = self._outcome == self.late
        return words, reward, not late, late, {}

    def _with(self, pack: Pack, at: int, **fields: Any) -> Pack:
        """The pack whose tasks hold something else from task `at` on."""
        later = (replace(task, spec=replace(cast(Any, self._spec(task)), **fields)) for task in pack.tasks[at:])
        return replace(pack, tasks=(*pack.tasks[:at], *later))
