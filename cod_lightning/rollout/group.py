"""Many lifecycles at once: K siblings of every pack, each a coroutine of its own, none waiting for another."""

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import TextEnv
from cod_lightning.rollout.attempts import Branching
from cod_lightning.rollout.collector import collected_by_growth
from cod_lightning.rollout.dialogue import Speaker
from cod_lightning.rollout.lifecycle import run_lifecycle
from cod_lightning.rollout.monitor import RolloutMonitor
from cod_lightning.types import Group, Pack

_MOST_THREADS = 64
"""Worlds that wait for something outside at the same time."""


async def run_group(
    pack: Pack,
    num_siblings: int,
    *,
    world: TextEnv,
    mechanism: ContextMechanism,
    speaker: Speaker,
    monitor: RolloutMonitor,
    branching: Branching | None = None,
) -> Group:
    """K lifecycles of one pack; all begin with the same first prompt and differ by their sampling noise."""
    lifecycles = await asyncio.gather(
        *(
            run_lifecycle(
                pack, k, world=world, mechanism=mechanism, speaker=speaker, monitor=monitor, branching=branching
            )
            for k in range(num_siblings)
        )
    )
    return Group(pack=pack, lifecycles=tuple(lifecycles))


def run_groups(
    packs: Sequence[Pack],
    num_siblings: int,
    *,
    world: TextEnv,
    mechanism: ContextMechanism,
    speaker: Speaker,
    monitor: RolloutMonitor | None = None,
    label: str = "rollout",
    branching: Branching | None = None,
) -> list[Group]:
    """One group for each pack, in the order of the packs."""
    watching = monitor or RolloutMonitor()
    started = (
        run_group(
            pack,
            num_siblings,
            world=world,
            mechanism=mechanism,
            speaker=speaker,
            monitor=watching,
            branching=branching,
        )
        for pack in packs
    )
    return gather_groups(started, packs, num_siblings, watching, label)


def gather_groups(
    started: Iterable[Coroutine[Any, Any, Group]],
    packs: Sequence[Pack],
    num_siblings: int,
    monitor: RolloutMonitor,
    label: str,
) -> list[Group]:
    """What these coroutines come to, one for each pack, all at once."""

    groups: list[Group] = []

    async def run_all() -> None:  # returns nothing: asyncio puts a result of `run` into words when it is over
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_MOST_THREADS))  # made as they are needed
        groups.extend(await asyncio.gather(*started))

    monitor.begin(label, len(packs) * num_siblings, max((len(pack) for pack in packs), default=0))
    try:
        with (
            collected_by_growth(),
            contextlib.chdir(os.getcwd()),
        ):  # a world that goes elsewhere takes no file of the run along
            asyncio.run(run_all())
    finally:
        monitor.end()
    return groups
