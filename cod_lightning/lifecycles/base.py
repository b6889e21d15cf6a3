"""What a program is, what it may ask of an agent, and the episodes that it will have, without playing any."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from cod_lightning.errors import ConfigError, answering
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Pack, Split, Task

Shows = Literal["own", "previous"]
"""What an attempt is shown: the agent's own context, or the one before the latest rewrite."""
MOST_EPISODES = 100_000
"""Of a lifecycle; a program that goes on until a task is solved has more where it never is."""


class Ask:
    """A text for which a program asks before a task, such as a plan. What its methods raise fails the environment.

    Args:
        request: What follows the task's first observation.
    """

    scripted: ClassVar[bool] = False
    """Whether scripted players write it: a warm start shows it then, and evaluations of them have it."""

    chooses_task: ClassVar[bool] = False
    """Whether the answer may put another task in place of the pack's own, so that siblings play different ones."""

    def __init__(self, request: str = "") -> None:
        self.request = request

    def message(self, env: Any, observation: str) -> str:
        """The user's message; `env` (a `TextEnv`) is at the beginning of the task."""
        return f"{observation}{self.request}"

    def read(self, env: Any, response: str) -> Any:
        """What the response stands for; None where it is not what was asked for."""
        return response.strip() or None

    def check(self, env: Any) -> None:
        """Raise `ConfigError` where it has no meaning in this environment, which is at the beginning of a task."""


class Written(NamedTuple):
    """What came of an `Ask`."""

    episode: Episode
    value: Any
    """What `Ask.read` made of the response; None where there is none."""

    @classmethod
    def skipped(cls, position: int) -> "Written":
        """Of a text that is not written, so that no lifecycle has the episode."""
        return cls(Episode(kind=EpisodeKind.WRITE, position=position, status=EpisodeStatus.SKIPPED), None)


class Agent(Protocol):
    """One agent in an environment of its own, with the context that it carries. Every call appends an episode to its lifecycle.

    After an episode that failed all others are skipped: they are appended without a reward, and the program goes on. An episode is
    compared with the pack's episodes of its kind that have the same name `compared_with`, in any lifecycle; without a name with
    those at its position, an attempt with what began at the same moment.
    """

    sibling: int
    """0-based number among the lifecycles of its pack."""

    async def solve(
        self,
        task: Task,
        *,
        shown: Any = None,
        context: Any = None,
        note: str = "",
        compared_with: str = "",
    ) -> Episode:
        """All turns of the task, at the next position, and the environment's feedback.

        It begins with `context`, a state of the mechanism such as an earlier episode's `state_before`, in place of the agent's own;
        with `shown` it is shown that state in place of its context, which stays and is rewritten as usual. The `note` follows the
        environment's rules as it is.
        """
        ...

    async def ask(
        self, task: Task, ask: Ask, *, shown: Any = None, context: Any = None, compared_with: str = ""
    ) -> Written:
        """An episode of one turn before the task is solved: the policy is shown what the task begins with, and asked for a text.

        Its return is as the credit rule says, unless the program pays it (`pay`).
        """
        ...

    def pay(
        self, episode: Episode, came_of: Sequence[Episode], weights: Sequence[float] = (), /, **parts: float
    ) -> None:
        """Add these parts to an episode's reward for the episodes that came of it, and make that its return.

        With `weights`, one for each of these, their rewards count in the return as well; the credit rule has no say in it. The
        reward is missing, by the same fault, where one of theirs is.
        """

    def skip(self, kind: EpisodeKind) -> Episode:
        """An episode that does not take place: the next solve episode, or an update after the latest one."""
        raise TypeError(f"{type(self).__name__} skips no episode")

    async def rewrite(self, solved: Episode, *, skip: bool = False, compared_with: str = "") -> Episode | None:
        """The context rewritten in view of a solve episode; None, and no episode, where it is written within tasks alone.

        With `skip` the episode does not take place.
        """
        ...

    def fork(self, task: Task, context: Shows = "own", note: str = "", compared_with: str = "") -> None:
        """Begin an attempt at this task beside the lifecycle, in a copy of the environment as it is now; nothing comes after it.

        With another context than its own it only measures what that is worth, and is not trained on. The `note` is as in `solve`.
        """

    async def attempts(self) -> Sequence[Episode]:
        """Those that began beside the latest solve episode, with its context, once they have ended; `rewrite` takes one in place of
        that episode."""
        return ()


class Program(ABC):
    """Which episode comes next, as ordinary code. A frozen dataclass, chosen with `data.program.class_path`.

    It may look at what came of episodes; a lifecycle may have more or fewer of them than its siblings have.
    """

    @abstractmethod
    async def __call__(self, agent: Agent, pack: Pack) -> None:
        """A lifecycle through the pack."""

    @property
    def beside(self) -> Counter[Shows]:
        """Attempts (`Agent.fork`) that are made beside one solve episode at most, by what they are shown."""
        return Counter()

    @property
    def num_attempts(self) -> int:
        """Most solve episodes of one task at the same time, which the memory plan counts."""
        return 1 + self.beside.total()

    def words(self) -> tuple[str, ...]:
        """Words that the program says itself, for the vocabulary of a tiny policy."""
        return ()

    @property
    def held_out(self) -> "Program":
        """What everything but training follows: validation, suites, references, agents."""
        return self


def check_ends(num_episodes: int) -> None:
    """Raise `ConfigError` for a lifecycle that has so many episodes."""
    if num_episodes > MOST_EPISODES:
        expected = "one that ends, also where every task fails or all episodes after a failed one are skipped"
        raise ConfigError("data.program", f"one of {num_episodes:,} episodes", expected, "Bound its attempts.")


class OutlineStep(NamedTuple):
    """One episode of an outline."""

    kind: EpisodeKind
    position: int
    """0-based number of the solve episode that it is, that it follows, or that comes next."""
    task: int
    """Index in the pack of the task that it is about."""


class _Noting(Agent):
    """An agent that plays nothing and fails at every task, for the outline of a program."""

    sibling = 0

    def __init__(self, pack: Pack, updates: bool) -> None:
        self.steps: list[OutlineStep] = []
        self.asks: list[Ask] = []
        self._updates, self._solved = updates, list[int]()
        self._index = {task.id: index for index, task in enumerate(pack.tasks)}

    async def solve(self, task: Task, **_: Any) -> Episode:
        self._solved.append(self._index[task.id])
        return self._failed(EpisodeKind.SOLVE, len(self._solved) - 1, self._solved[-1])

    async def rewrite(self, solved: Episode, **_: Any) -> Episode | None:
        task = self._solved[solved.position]
        return self._failed(EpisodeKind.UPDATE, solved.position, task) if self._updates else None

    async def ask(self, task: Task, ask: Ask, **_: Any) -> Written:
        if not isinstance(ask, Ask):
            raise TypeError(f"a {type(ask).__name__} in place of an Ask")
        self.asks.append(ask)
        return Written(self._failed(EpisodeKind.WRITE, len(self._solved), self._index[task.id]), None)

    def _failed(self, kind: EpisodeKind, position: int, task: int) -> Episode:
        check_ends(len(self.steps))
        self.steps.append(OutlineStep(kind, position, task))
        return Episode(kind=kind, position=position, status=EpisodeStatus.COMPLETED, reward=0.0, success=False)


def outline(program: Program, num_tasks: int, updates: bool = True) -> tuple[OutlineStep, ...]:
    """The episodes of a lifecycle through so many tasks, none of which is solved; `updates` as `ContextMechanism.updates` says.

    Raises `ConfigError` for a program that solves nothing, or waits for anything but its agent.
    """
    return tuple(_noted(program, num_tasks, updates).steps)


def asks(program: Program, num_tasks: int) -> list[Ask]:
    """The different texts for which the program asks. Raises what `outline` raises."""
    return list({(type(ask), ask.request): ask for ask in _noted(program, num_tasks, True).asks}.values())


def _noted(program: Program, num_tasks: int, updates: bool) -> _Noting:
    tasks = tuple(Task(id=str(n), seed=n, spec=None) for n in range(num_tasks))
    pack = Pack(id="outline", split=Split.TRAIN, world_seed=0, tasks=tasks)
    agent, name = _Noting(pack, updates), f"{type(program).__name__} for {num_tasks} tasks"
    refused = partial(ConfigError, "data.program", name, remedy="Correct it.")
    with answering(refused, "a program that raises nothing"):
        lifecycle = program(agent, pack)
        with suppress(StopIteration):  # nothing that the agent does takes time, so the program is over
            lifecycle.send(None)
            lifecycle.close()
            raise refused("a program that waits for its agent alone")
    if not any(step.kind is EpisodeKind.SOLVE for step in agent.steps):
        raise refused("a program with a solve episode")
    return agent
