"""Packs that hide the same say so, and intervals resample them together; a world, and a task of a list, is in one split."""

import random
from typing import Any

import pytest

from cod_lightning.envs.base import HiddenRules, beside, split_of_text
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.grouped import GroupedTasks
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.envs.ralph_loop import RalphLoop
from cod_lightning.envs.ways import AppsWays
from cod_lightning.types import Split
from tests.cases import each

LEVERS = Levers(protocol="compact")


def hidden(world, pack):
    return beside(world, HiddenRules).hidden_rule(pack)


def drawn(world, number=60):
    return [world.sample_pack(split=Split.TEST, index=index, num_tasks=3) for index in range(number)]


def test_levers_hide_what_each_gives_apps_the_habits_that_tasks_ask_for_and_lakes_what_the_codes_mean():
    found: dict[str, set[Any]] = {}
    for pack in drawn(LEVERS):
        found.setdefault(hidden(LEVERS, pack), set()).add(pack.tasks[0].spec.colours)  # pyright: ignore
    assert 1 < len(found) <= 24
    assert all(len(colours) == 1 for colours in found.values())
    world = AppsWays()
    assert len({hidden(world, pack) for pack in drawn(world, 200)}) > 100
    world = FrozenLakeObscure(size_min=3, size_max=3)
    assert len({hidden(world, pack) for pack in drawn(world, 200)}) == 24


@each("wrap", [RalphLoop, lambda world: NonStationary(world, 1)])
def test_a_wrapped_world_hides_what_the_world_inside_does(wrap):
    world = wrap(LEVERS)
    for pack, inner in zip(drawn(world, 5), drawn(LEVERS, 5), strict=True):
        assert hidden(world, pack) == hidden(LEVERS, inner)


def test_worlds_of_a_mixture_hide_nothing_in_common():
    mixed = Mixture({"a": LEVERS, "b": Levers(protocol="compact", max_turns=3)})
    found = {hidden(mixed, pack) for pack in drawn(mixed)}
    assert {rule[0] for rule in found} == {"a", "b"}


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
