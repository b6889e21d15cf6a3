"""What a file or folder of questions holds, and what of it would spoil packs: the part of `check` that reads it."""

from collections.abc import Iterator

from cod_lightning.envs.dataset import DatasetWorld
from cod_lightning.envs.dataset.records import columns_of, read_rows
from cod_lightning.envs.grouped import group_name
from cod_lightning.evaluation.verdicts import MOST_EXAMPLES, Verdict
from cod_lightning.types import Split

_MOST_NAMED = 12
"""Columns that are named."""


def check_data(world: DatasetWorld) -> Iterator[Verdict]:
    """Columns, rows, groups and splits, with what breaks a rule of them."""
    read = [*dict.fromkeys(filter(None, world.columns.values()))]
    unread = [name for name in columns_of(world.path) if name not in read]
    more = f"; not read: {', '.join(unread[:_MOST_NAMED])}" if unread else ""
    cut = f" and {len(unread) - _MOST_NAMED} more" if len(unread) > _MOST_NAMED else ""
    yield Verdict("the columns are there", remark=f"{', '.join(read)}{more}{cut}")

    rows, members, group = 0, dict[str, list[str]](), world.columns["group"]
    for place, row in read_rows(world.path, tuple(read)):
        if not row:
            continue
        rows += 1
        if group is not None:
            members.setdefault(group_name(row[group]), []).append(place)
    sizes = world.sizes
    tasks = sum(map(sum, sizes.values()))
    equal = f", {tasks:,} tasks, since equal rows count once" if rows > tasks else ""
    yield Verdict("each row is a task of its own", remark=f"{rows:,} rows{equal}", look=rows > tasks)
    if group is None:
        yield Verdict("groups have several tasks", remark="no column of groups: all tasks belong together")
    else:
        yield _groups(members, sizes)
    what = "task" if group is None else "group"
    shares = {split: sum(of_split) if group is None else len(of_split) for split, of_split in sizes.items()}
    remark = ", ".join(
        f"{split} {number:,} {what}{'s' * (number != 1)}" + f" ({sum(sizes[split]):,} tasks)" * (group is not None)
        for split, number in shares.items()
    )
    empty = [f"{split} has none; 3 {what}s are enough for all" for split, number in shares.items() if not number]
    yield Verdict(f"each split has {what}s", tuple(empty), remark)


def _groups(members: dict[str, list[str]], sizes: dict[Split, list[int]]) -> Verdict:
    """A group of one task has nothing to carry to another one: its packs ask the same again."""
    found = sorted(size for of_split in sizes.values() for size in of_split)
    extent = f"{found[0]:,}" if found[0] == found[-1] else f"{found[0]:,} to {found[-1]:,}"
    single = [f"group {name:.60} has one row, {places[0]}" for name, places in members.items() if len(places) == 1]
    remark = f"{len(found):,} groups of {extent} tasks" + (f", {found.count(1):,} of them of one" if 1 in found else "")

    several = [f"{found.count(1):,} groups have one task, several times"] if found[0] == 1 and not single else []
    return Verdict("groups have several tasks", tuple([*single, *several][:MOST_EXAMPLES]), remark)
