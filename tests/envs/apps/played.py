"""Tasks played to their end, and states that have been damaged."""

import random
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from msgspec.structs import replace

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.database import Database, TableRow
from cod_lightning.envs.apps.server import AppServer
from cod_lightning.envs.apps.tasks import AppsTask, play
from cod_lightning.envs.base import Reference
from cod_lightning.types import Split
from tests.envs.scripted_life import live


def specs(env: Apps, count: int, split: Split = Split.TRAIN) -> Iterator[AppsTask]:
    """That many tasks, four of a pack."""
    for index in range(-(-count // 4)):
        for task in env.sample_pack(split=split, index=index, num_tasks=min(4, count - 4 * index)).tasks:
            yield task.spec


def solved(task: AppsTask) -> AppServer:
    """The site after informed play."""
    server = task.server(patience=2)
    play(server, task.plan(task.facts))
    return server


def successes(env: Apps, kind: Reference, count: int, split: Split = Split.TRAIN) -> list[bool]:
    """Whether each of that many tasks was solved by a reference; four of a pack."""
    packs = [env.sample_pack(split=split, index=index, num_tasks=4) for index in range(count // 4)]
    lives = (live(env, pack, kind, seed) for seed, pack in enumerate(packs))
    return [lived.success for life in lives for lived in life]


def damaged(db: Database, rng: random.Random) -> tuple[Database, str]:
    """A copy with one thing that was not asked for, and what it is."""
    twin = db.copy()
    row: TableRow = rng.choice([row for table in twin.tables.values() for row in table.values()])
    kind = type(row).__name__
    how = rng.choice(("column", "column", "column", "gone", "twice"))
    if how == "gone":
        twin.remove(row)
    elif how == "twice":
        twin.add(row)
    else:
        hints = get_type_hints(type(row))
        name = rng.choice([name for name in row.__struct_fields__ if name != "id"])
        twin.put(replace(row, **{name: _other(getattr(row, name), hints[name], rng)}))
        how = name
    return twin, f"{kind} {row.id}: {how}"


def _other(value: Any, hint: Any, rng: random.Random) -> Any:
    """Another value of the type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-1, 1, 10))
    if isinstance(value, tuple):
        return (*value, get_args(hint)[0]("7"))
    return rng.choice((f"{value} ", f"x{value}", value.upper() if value != value.upper() else f"{value}?"))
