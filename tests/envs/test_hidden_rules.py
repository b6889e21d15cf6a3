"""Test packs of shipped worlds hide as much as training packs do, and what a player without memory learns there holds in tests."""

import pytest

from cod_lightning.commands.worlds import parse_world
from cod_lightning.types import Split
from tests.envs.hidden_rules import TRIES, games, memoryless_gap, memoryless_success, num_rules
from tests.own_worlds import own_worlds

QUICK = {"levers", "doors", "invented", "frozen_lake_3x3"}
HIDING = sorted(set(own_worlds()) - {"terminal_reference"})


def world(name):
    return parse_world("check", "", ["--env", name]).env


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in HIDING])
def test_test_packs_have_about_as_many_hidden_rules_as_training_packs(name):
    train, test = (num_rules(world(name), split, 64) for split in (Split.TRAIN, Split.TEST))
    assert test >= 0.75 * train, "a split with few rules: let the tasks decide it"


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in TRIES])
def test_the_best_player_without_memory_in_training_is_as_good_in_tests(name):
    train, test = memoryless_gap(world(name), name, 512)
    assert abs(train - test) < 0.05


def test_the_best_player_without_memory_pulls_at_the_second_lever_what_the_first_makes_likely():
    levers = games(world("levers"), "levers", Split.TRAIN, range(2000))
    assert memoryless_success(levers, levers) == pytest.approx(0.5, abs=0.05), "two of four levers"
    one = [task for task in levers if task == levers[0]]
    assert memoryless_success(one, one) == 1.0
    assert memoryless_success(one, levers) < 0.6
