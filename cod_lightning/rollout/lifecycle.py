"""The paper's figure in code: solve, write down what was learned, use it next time. Read this file first.

    solve_0 -> update_0 -> solve_1 -> update_1 -> ... -> solve_{N-1}

One agent, one world, N tasks. Between tasks the agent rewrites its context; nothing else passes from task to task
(unless the world itself carries something over). Source: arXiv 2606.20002, the loop of CoD-Deploy and CoD-Train alike.
"""

import asyncio
import contextlib
import copy

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import TextEnv
from cod_lightning.rollout.attempts import Branching, Moment, start_attempts
from cod_lightning.rollout.deadlines import pack_ends
from cod_lightning.rollout.dialogue import Speaker
from cod_lightning.rollout.episode import run_solve_episode, run_update_episode
from cod_lightning.rollout.monitor import RolloutMonitor
from cod_lightning.types import Attempt, Episode, EpisodeKind, EpisodeStatus, Lifecycle, Pack, num_episodes


async def run_lifecycle(
    pack: Pack,
    sibling: int,
    *,
    world: TextEnv,
    mechanism: ContextMechanism,
    speaker: Speaker,
    monitor: RolloutMonitor,
    branching: Branching | None = None,
) -> Lifecycle:
    """Lead one agent through the pack, in a world of its own (`world` is a prototype and stays untouched).

    With `branching`, some tasks are attempted again beside it, from the moment at which they began.
    """
    env = copy.deepcopy(world)
    previous = context = mechanism.empty()
    ends = pack_ends(speaker.deadlines)
    episodes: list[Episode] = []
    beside: list[asyncio.Future[list[Attempt]]] = []

    def identity() -> str:
        return f"{pack.id}#{sibling}.{len(episodes)}"

    with contextlib.closing(env):
        for position, task in enumerate(pack.tasks):
            if branching is not None:
                moment = Moment(pack_id=pack.id, sibling=sibling, position=position, task=task)
                given = branching.given(moment, context=context, previous=previous, empty=mechanism.empty())
                beside.append(
                    start_attempts(given, moment, env=env, mechanism=mechanism, speaker=speaker, pack_ends=ends)
                )
            solved = await run_solve_episode(
                env,
                task,
                context,
                mechanism=mechanism,
                speaker=speaker,
                identity=identity(),
                position=position,
                pack_ends=ends,
            )
            solved = await speaker.scored(solved, task)
            episodes.append(solved)
            monitor.episode(solved)
            if solved.status is EpisodeStatus.FAILED or position == len(pack) - 1:
                break
            updated = await run_update_episode(
                env.rules, solved, mechanism=mechanism, speaker=speaker, identity=identity(), pack_ends=ends
            )
            updated = await speaker.scored(updated, task)
            episodes.append(updated)
            monitor.episode(updated)
            if updated.status is EpisodeStatus.FAILED:
                break
            previous, context = context, updated.context_after

    episodes += [_skipped(e) for e in range(len(episodes), num_episodes(len(pack)))]
    attempts = [attempt for begun in beside for attempt in await begun]
    lifecycle = Lifecycle(pack_id=pack.id, sibling=sibling, episodes=tuple(episodes), attempts=tuple(attempts))
    monitor.lifecycle(lifecycle)
    return lifecycle


def _skipped(index: int) -> Episode:
    """The episode that never began, because an earlier one failed."""
    kind = EpisodeKind.UPDATE if index % 2 else EpisodeKind.SOLVE
    return Episode(kind=kind, position=index // 2, status=EpisodeStatus.SKIPPED)
