"""CoD-Deploy without an end: an agent that solves one task after another and keeps its context in a store.

agent = Agent(env, HintContext(), speaker, ContextStore("state"))
episode = agent.solve(task)
"""

import asyncio
import time
from collections.abc import Callable

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.deployment.store import ContextStore
from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import DataError
from cod_lightning.rollout.dialogue import Speaker
from cod_lightning.rollout.episode import run_solve_episode, run_update_episode
from cod_lightning.types import Episode, EpisodeStatus, Task


class Agent:
    """One agent in one world: solve, write down what was learnt, use it next time, for as long as there are tasks.

    The loop is that of `rollout.lifecycle`, with three differences: it has no last task, so every task is followed by a rewrite
    of the context; a failed world or engine costs its task and not the tasks that follow; and whatever has ended is in
    the store before anything else begins. An agent whose process died goes on where it was: it first rewrites the context
    for a task that ended without that, and shows the world the earlier tasks again, for worlds that carry something over.

    Args:
        env: The world.
        mechanism: How the context is written.
        speaker: The policy: engine, chat, sampling.
        store: Where episodes and contexts are kept.
        on_episode: Told of every episode as it is stored.
    """

    def __init__(
        self,
        env: TextEnv,
        mechanism: ContextMechanism,
        speaker: Speaker,
        store: ContextStore,
        on_episode: Callable[[Episode], None] = lambda episode: None,
    ) -> None:
        self.env, self.mechanism, self.speaker, self.store = env, mechanism, speaker, store
        self._told = on_episode
        self._resumed = False

    @property
    def context(self) -> str:
        """What the next task will be given."""
        current = self.store.current()
        return current.text if current.version else self.mechanism.empty()

    def resume(self, tasks: list[Task]) -> None:
        """Bring the world to where the store's episodes left it, and finish what was begun.

        `tasks` are those of the stored solve episodes, in order.
        """
        solved = [stored.episode for stored in self.store.episodes() if stored.episode.kind == "solve"]
        for task, episode in zip(tasks, solved, strict=True):
            self._replay(task, episode)
        if (waiting := self.store.awaiting_update()) is not None:
            self._update(waiting.task, waiting.episode)
        self._resumed = True

    def solve(self, task: Task) -> Episode:
        """Solve the task and rewrite the context; returns the solve episode."""
        assert self._resumed or not self.store.num_solved(), "the store holds earlier tasks; call resume() first"
        self._resumed = True
        position, began = self.store.num_solved(), time.time()
        solved = asyncio.run(
            run_solve_episode(
                self.env,
                task,
                self.context,
                mechanism=self.mechanism,
                speaker=self.speaker,
                identity=f"deploy/{task.id}.{position}.solve",
                position=position,
            )
        )
        self.store.add_solve(task.id, solved, began)
        self._told(solved)
        if solved.status is not EpisodeStatus.FAILED:
            self._update(task.id, solved)
        return solved

    def _update(self, task_id: str, solved: Episode) -> None:
        began = time.time()
        updated = asyncio.run(
            run_update_episode(
                self.env.rules,
                solved,
                mechanism=self.mechanism,
                speaker=self.speaker,
                identity=f"deploy/{task_id}.{solved.position}.update",
            )
        )
        self.store.add_update(task_id, updated, began)
        self._told(updated)

    def _replay(self, task: Task, episode: Episode) -> None:
        """Give the world the responses that it got; it is deterministic, so it says what it said, or is another world."""
        if episode.status is EpisodeStatus.FAILED:
            return
        shown = [self.env.reset(options={"task": task})[0]]
        for turn in episode.turns:
            if turn.observation != shown[-1]:
                break
            shown.append(self.env.step(turn.response)[0])
        if shown != [*(turn.observation for turn in episode.turns), episode.feedback]:
            raise DataError(
                f"task {episode.position} in {self.store.path} was played in another world than this one: at turn "
                f"{len(shown) - 1} it says something else. Use the parameters and the version of then, or a new --state."
            )
