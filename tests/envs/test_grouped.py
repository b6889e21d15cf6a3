"""Lists of tasks in groups: which split a group belongs to, by its hash or because the source of the tasks says so."""

import random

import pytest

from cod_lightning.envs.grouped import GroupedTasks
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split
from tests.cases import each

OURS = {"train": Split.TRAIN, "validation": Split.VALIDATION, "test": Split.TEST}


def listed(**splits):
    """Tasks by the names of their splits; each is a group of its own name."""
    return [(str(n), {"n": n, "split": name}) for name, numbers in splits.items() for n in numbers]


def of(tasks):
    return GroupedTasks(tasks, split_of=lambda task: OURS.get(task["split"]))


def groups(tasks, split):
    draws = [tasks.draw(random.Random(index), split, 1)[0] for index in range(200)]
    return {int(text.partition(":")[2].partition(",")[0]) for text in draws}


def test_a_task_stays_in_the_split_that_its_source_names():
    tasks = of(listed(train=range(5), validation=range(10, 13), test=range(20, 23), other=range(30, 60)))
    seen = [groups(tasks, split) for split in Split]
    assert [{n for n in one if n < 30} for one in seen] == [set(range(5)), {10, 11, 12}, {20, 21, 22}]
    alone = of(listed(other=range(30, 60)))
    assert [{n for n in one if n >= 30} for one in seen] == [groups(alone, split) for split in Split]


def test_a_group_of_another_name_joins_the_named_split_that_has_it():
    shared = [(name, task | {"split": "other"}) for name, task in listed(train=[1], validation=[2], test=[3])]
    tasks = of([*listed(train=[1, 4], validation=[2], test=[3]), *shared])
    assert [groups(tasks, split) for split in Split] == [{1, 4}, {2}, {3}]
    assert sorted(map(len, tasks.all)) == [1, 2, 2, 2]


@each("missing", [("validation",), ("test",), ("validation", "test")])
def test_a_held_out_split_that_the_source_lacks_is_parted_from_what_it_trains(missing):
    given = {"train": range(20), "validation": range(20, 25), "test": range(25, 30)}
    tasks = of(listed(**{name: numbers for name, numbers in given.items() if name not in missing}))
    seen = {str(split): groups(tasks, split) for split in Split}
    for name, numbers in given.items():
        if name in missing:
            assert seen[name]
            assert seen[name] < set(given["train"])
        elif name != "train":
            assert seen[name] == set(numbers)
    assert set.union(*(seen[name] for name in ("train", *missing))) == set(range(20))
    assert not seen["train"] & set.union(*(seen[name] for name in missing))


def test_nothing_that_the_source_holds_out_is_trained_on():
    with pytest.raises(ConfigError, match="6 groups; expected one group of the train split at least"):
        of(listed(validation=range(3), test=range(3, 6))).draw(random.Random(0), Split.TRAIN, 1)


def test_without_groups_a_task_stays_in_its_split_too_and_the_order_of_the_list_changes_no_draw():
    rows = [(None, task) for _, task in listed(train=range(9), test=range(20, 23))]
    one, other = of(rows), of(rows[::-1])
    for split in Split:
        assert one.draw(random.Random(1), split, 5) == other.draw(random.Random(1), split, 5)
    assert {task.partition('"split": ')[2] for task in one.draw(random.Random(0), Split.TEST, 9)} == {'"test"}'}
