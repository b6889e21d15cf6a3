"""Splits: dealt by the text of a world, so that none is in two of them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.doors import Doors
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.frozen_lake.lake import Lake, split_of
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.splits import split_of_text
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split

every_split = pytest.mark.parametrize("split", list(Split))


@pytest.mark.parametrize(
    ("text", "split"), [("SF/FG", Split.TRAIN), ("world 18", Split.VALIDATION), ("world 13", Split.TEST)]
)
def test_the_split_of_a_text_never_changes(text, split):
    assert split_of_text(text) is split


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_is_in_one_split_and_always_the_same(text):
    assert split_of_text(text) is split_of_text(text)
    assert split_of_text(text) in Split


def test_eight_of_ten_texts_train_one_validates_one_tests():
    rng = random.Random(0)
    splits = [split_of_text(str(rng.random())) for _ in range(10_000)]
    assert [splits.count(split) / len(splits) for split in Split] == pytest.approx([0.8, 0.1, 0.1], abs=0.015)


@every_split
@pytest.mark.parametrize("sizes", [(3, 3), pytest.param((3, 5), marks=pytest.mark.slow)])
def test_every_drawn_lake_is_in_the_split_that_was_asked_for(split, sizes):
    env = FrozenLakeObscure(size_min=sizes[0], size_max=sizes[1], max_shortest_path=4)
    packs = [env.sample_pack(split=split, index=i, num_tasks=8) for i in range(80)]
    assert {split_of(Lake(task.spec.rows)) for pack in packs for task in pack.tasks} == {split}


@every_split
@pytest.mark.parametrize("num_tasks", [1, 2, 4, 8])
def test_every_drawn_pack_of_levers_is_in_the_split_that_was_asked_for(split, num_tasks):
    for index in range(150):
        pack = Levers().sample_pack(split=split, index=index, num_tasks=num_tasks)
        specs = [t.spec for t in Levers().sample_pack(split=split, index=index, num_tasks=4).tasks]
        assert split_of_text(" ".join([*specs[0].colours, "|", *(spec.goal for spec in specs)])) is split
        assert [t.spec for t in pack.tasks][:4] == specs[:num_tasks], "the split is that of the first four tasks"


@every_split
def test_every_drawn_pack_of_doors_is_in_the_split_that_was_asked_for(split):
    for index in range(100):
        specs = [t.spec for t in Doors(num_doors=3).sample_pack(split=split, index=index, num_tasks=4).tasks]
        assert {spec.keys for spec in specs} == {specs[0].keys}
        assert split_of_text(" ".join([*specs[0].keys, "|", *(str(spec.door) for spec in specs)])) is split


def test_a_split_without_worlds_is_refused_and_never_hangs(monkeypatch):
    monkeypatch.setattr("cod_lightning.envs.levers.world.split_of_text", lambda text: Split.TRAIN)
    with pytest.raises(ConfigError, match="a pack of the split test"):
        Levers().sample_pack(split=Split.TEST, index=0, num_tasks=4)
