"""Splits: dealt by the text of a world, so that none is in two of them, and those of a list of tasks."""

import random

import pytest

from cod_lightning.envs.base import split_of_text
from cod_lightning.envs.grouped import GroupedTasks
from cod_lightning.types import Split
from tests.cases import each


@each(("text", "split"), [("SF/FG", Split.TRAIN), ("world 18", Split.VALIDATION), ("world 13", Split.TEST)])
def test_the_split_of_a_text_never_changes(text, split):
    assert split_of_text(text) is split


def test_a_split_never_changes_and_of_ten_texts_eight_train_one_validates_one_tests():
    rng = random.Random(0)
    splits = [split_of_text(str(rng.random())) for _ in range(10_000)]
    assert [splits.count(split) / len(splits) for split in Split] == pytest.approx([0.8, 0.1, 0.1], abs=0.015)


@each("grouped", [True, False])
def test_the_order_of_the_list_changes_no_draw_and_each_split_has_tasks_of_its_own(grouped):
    rows = [(str(n) if grouped else None, {"n": n}) for n in range(30)]
    one, other = GroupedTasks(rows), GroupedTasks(rows[::-1])
    seen = []
    for split in Split:
        draws = [one.draw(random.Random(index), split, 5) for index in range(300)]
        assert draws == [other.draw(random.Random(index), split, 5) for index in range(300)]
        seen.append({text for draw in draws for text in draw})
    assert sum(map(len, seen)) == len(set.union(*seen)) == 30
