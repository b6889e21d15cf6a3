"""Lifecycles whose contexts come from outside: solve episodes only, and nobody is asked to write anything down.

    z0 -> solve_0     z1 -> solve_1     ...     z(N-1) -> solve_(N-1)

For controls of an evaluation: no context, another pack's, the truth. A solve episode has the identity that it has in a
`run_lifecycle` of the same pack, and so the same sampling noise: where the contexts agree, so does what happens.
"""

import contextlib
import copy
from collections.abc import Sequence

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import TextEnv
from cod_lightning.rollout.deadlines import pack_ends
from cod_lightning.rollout.dialogue import Speaker
from cod_lightning.rollout.episode import run_solve_episode
from cod_lightning.rollout.group import gather_groups
from cod_lightning.rollout.monitor import RolloutMonitor
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Group, Lifecycle, Pack, episode_index, num_episodes

Contexts = Sequence[str | None]
"""[N] what the solve prompt at each position shows; None where nobody knows, and the task is left out."""


async def run_given_lifecycle(
    pack: Pack,
    contexts: Contexts,
    *,
    world: TextEnv,
    mechanism: ContextMechanism,
    speaker: Speaker,
    monitor: RolloutMonitor,
) -> Lifecycle:
    """One agent through the pack, in a world of its own. Update episodes, and tasks whose context is None, are skipped."""
    assert len(contexts) == len(pack), f"{len(contexts)} contexts for {len(pack)} tasks"
    env = copy.deepcopy(world)
    episodes = [_skipped(index) for index in range(num_episodes(len(pack)))]
    ends = pack_ends(speaker.deadlines)
    with contextlib.closing(env):
        for position, (task, context) in enumerate(zip(pack.tasks, contexts, strict=True)):
            if context is None:
                continue
            index = episode_index(EpisodeKind.SOLVE, position)
            solved = await run_solve_episode(
                env,
                task,
                context,
                mechanism=mechanism,
                speaker=speaker,
                identity=f"{pack.id}#0.{index}",
                position=position,
                pack_ends=ends,
            )
            episodes[index] = await speaker.scored(solved, task)
            monitor.episode(episodes[index])
            if episodes[index].status is EpisodeStatus.FAILED:
                break
    lifecycle = Lifecycle(pack_id=pack.id, sibling=0, episodes=tuple(episodes))
    monitor.lifecycle(lifecycle)
    return lifecycle


def run_given_groups(
    packs: Sequence[Pack],
    contexts: Sequence[Contexts],
    *,
    world: TextEnv,
    mechanism: ContextMechanism,
    speaker: Speaker,
    monitor: RolloutMonitor | None = None,
    label: str = "rollout",
) -> list[Group]:
    """One lifecycle for each pack, in the order of the packs, each with its own contexts."""
    watching = monitor or RolloutMonitor()

    async def run_one(pack: Pack, given: Contexts) -> Group:
        life = await run_given_lifecycle(
            pack, given, world=world, mechanism=mechanism, speaker=speaker, monitor=watching
        )
        return Group(pack=pack, lifecycles=(life,))

    started = (run_one(pack, given) for pack, given in zip(packs, contexts, strict=True))
    return gather_groups(started, packs, 1, watching, label)


def _skipped(index: int) -> Episode:
    """The episode that never began: an update that nobody asked for, or a task that could not be set."""
    kind = EpisodeKind.UPDATE if index % 2 else EpisodeKind.SOLVE
    return Episode(kind=kind, position=index // 2, status=EpisodeStatus.SKIPPED)
