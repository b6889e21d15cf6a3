"""Graphs, packs, rules: what is drawn, which targets come when, changes; what it says is in dialogues.txt."""

import random
from collections import Counter
from itertools import islice

import pytest

from cod_lightning.envs.alchemy import Alchemy
from cod_lightning.envs.alchemy.graph import book_of, levels, slots_of, way_to
from cod_lightning.envs.alchemy.tasks import target_sequence
from cod_lightning.envs.base import HiddenRules, beside
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split
from tests.cases import each
from tests.envs.alchemy.worlds import COMPACT, HARD, MANY


def _packs(env, count, num_tasks=4, split=Split.TRAIN):
    return [env.sample_pack(split=split, index=i, num_tasks=num_tasks) for i in range(count)]


def _tier(task):
    return levels(task.spec.tiers)[task.spec.target]


@each("parameters", [{}, HARD, MANY, COMPACT])
def test_results_lie_one_tier_above_their_higher_input_within_the_gap_and_have_as_many_recipes_as_the_bounds_say(
    parameters,
):
    env = Alchemy(**parameters)
    for pack in _packs(env, 60, 1):
        spec = pack.tasks[0].spec
        level = levels(spec.tiers)
        for first, second, result in spec.recipes:
            low, high = sorted((level[first], level[second]))
            assert level[result] == high + 1
            assert level[result] - low <= env.parameters.max_tier_gap
        assert set(book_of(spec.recipes)) <= set(map(tuple, map(sorted, slots_of(spec.tiers, 2, True))))
        made = Counter(result for *_, result in spec.recipes)
        assert set(made) == {name for tier in spec.tiers[1:] for name in tier}
        assert max(made.values()) <= env.parameters.recipes_max
        assert all(made[name] == 1 for decoys in spec.decoys for name in decoys)


def test_decoys_are_ingredients_of_decoys_only_and_not_told_apart_by_their_place():
    places = []
    for pack in _packs(Alchemy(**{**HARD, "noise_max": 0.6}), 100, 1):
        spec = pack.tasks[0].spec
        hidden = {name for decoys in spec.decoys for name in decoys}
        for first, second, result in spec.recipes:
            assert result in hidden or not {first, second} & hidden
        places += [tier.index(name) / (len(tier) - 1) for tier in spec.tiers for name in tier if name in hidden]
    assert 0.4 < sum(places) / len(places) < 0.6


@each("parameters", [{}, HARD, COMPACT])
def test_all_targets_are_asked_for_once_before_any_comes_again(parameters):
    for pack in _packs(Alchemy(**parameters), 40, num_tasks=24):
        targets = [task.spec.target for task in pack.tasks]
        different = len(set(targets))
        assert len(set(targets[:different])) == different
        assert [task.repeat for task in pack.tasks] == [n >= different for n in range(24)]
        decoys = {name for decoys in pack.tasks[0].spec.decoys for name in decoys}
        assert not decoys & set(targets)
        assert min(map(_tier, pack.tasks)) >= 1


def test_the_first_eight_positions_ask_for_all_tiers_alike():
    candidates = ((), ("k", "l", "m", "n"), ("p", "q", "r"), ("u", "v"), ("x",))
    drawn = [list(islice(target_sequence(random.Random(seed), candidates), 10)) for seed in range(3000)]
    level = {name: tier for tier, names in enumerate(candidates) for name in names}
    means = [sum(level[run[n]] for run in drawn) / len(drawn) for n in range(8)]
    assert max(means) - min(means) < 0.1
    assert sum(level[run[9]] for run in drawn) / len(drawn) < min(means) - 0.2, "low tiers are what is left over"


def test_trying_all_pairs_of_base_elements_does_not_always_find_the_target_unless_that_is_allowed():
    def shallow(**more):
        packs = _packs(Alchemy(**{**MANY, **more}), 150, 2)
        return sum(_tier(task) == 1 for pack in packs for task in pack.tasks if len(task.spec.tiers[0]) == 3)

    assert shallow() == 0
    assert shallow(max_turns=5) > 0, "six pairs do not fit into five rounds"
    assert shallow(brute_force=True) > 25


@each("parameters", [{}, HARD, {**HARD, "multiplier_min": 1.0, "multiplier_max": 1.0}])
def test_after_a_change_every_target_can_still_be_made_and_most_recipes_are_others(parameters):
    env, same, total = Alchemy(**parameters), 0, 0
    for pack in _packs(env, 25, 4):
        for old, new in zip(
            pack.tasks[1:], beside(env, HiddenRules).changed(pack, at=1, seed=3).tasks[1:], strict=True
        ):
            recipes, tiers, stock = new.spec.recipes, new.spec.tiers, new.spec.stock
            have, limited = dict.fromkeys(tiers[0], stock or 1), env.parameters.limited
            plan = way_to(recipes, tiers, new.spec.target, have, consume=limited, most=env.max_turns)
            assert plan is not None
            assert stock >= old.spec.stock
            same, total = same + len(set(recipes) & set(old.spec.recipes)), total + len(recipes)
    assert same < 0.4 * total


def test_a_world_without_a_target_worth_asking_for_is_refused():
    env = Alchemy(tiers_min=2, tiers_max=2, base_min=2, base_max=2, brute_force=False)
    with pytest.raises(ConfigError) as caught:
        env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    assert "brute_force" in caught.value.remedy


def test_the_rules_list_all_elements_by_tier_and_state_neither_a_recipe_nor_a_target_nor_which_are_decoys():
    env = Alchemy(noise_max=1.0, max_tier_gap=2)
    task = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks[0]
    env.reset(options={"task": task})
    assert any(task.spec.decoys)
    for tier, names in enumerate(task.spec.tiers):
        assert f"Tier {tier}: {', '.join(names)}\n" in env.rules + "\n"
    assert "Target" not in env.rules
    assert "=" not in env.rules, "no example can pass for a recipe"
