"""Splits: dealt by the text of a world, so that none is in two of them."""

import random

import pytest

from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.frozen_lake.lake import Lake, split_of
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.splits import split_of_text
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split
from tests.cases import each

every_split = each("split", list(Split))


@each(("text", "split"), [("SF/FG", Split.TRAIN), ("world 18", Split.VALIDATION), ("world 13", Split.TEST)])
def test_the_split_of_a_text_never_changes(text, split):
    assert split_of_text(text) is split


def test_eight_of_ten_texts_train_one_validates_one_tests():
    rng = random.Random(0)
    splits = [split_of_text(str(rng.random())) for _ in range(10_000)]
    assert [splits.count(split) / len(splits) for split in Split] == pytest.approx([0.8, 0.1, 0.1], abs=0.015)


@every_split
def test_every_drawn_lake_and_pack_of_levers_is_in_the_split_that_was_asked_for(split):
    lakes = FrozenLakeObscure(size_min=3, size_max=3, max_shortest_path=4)
    for index in range(80):
        pack = lakes.sample_pack(split=split, index=index, num_tasks=8)
        assert {split_of(Lake(task.spec.rows)) for task in pack.tasks} == {split}
        specs = [t.spec for t in Levers().sample_pack(split=split, index=index, num_tasks=9).tasks[:4]]
        text = " ".join([*specs[0].colours, "|", *(spec.goal for spec in specs)])
        assert split_of_text(text) is split, "the split is that of the first four tasks"


def test_a_split_without_worlds_is_refused_and_never_hangs(monkeypatch):
    monkeypatch.setattr("cod_lightning.envs.levers.world.split_of_text", lambda text: Split.TRAIN)
    with pytest.raises(ConfigError, match="a pack of the split test"):
        Levers().sample_pack(split=Split.TEST, index=0, num_tasks=4)
