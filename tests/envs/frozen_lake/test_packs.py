"""Packs of lakes: identities, mappings by scope, path lengths, names."""

import copy

import pytest

from cod_lightning.envs.base import HiddenRules, beside
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.frozen_lake.lake import MAPPINGS, Lake, distances
from cod_lightning.types import Split


def test_a_pack_is_a_function_of_its_identity():
    env = FrozenLakeObscure()
    identity = {"split": Split.TEST, "index": 3, "num_tasks": 4, "seed": 7}
    pack = env.sample_pack(**identity)
    assert pack == FrozenLakeObscure().sample_pack(**identity) == copy.deepcopy(env).sample_pack(**identity)
    assert pack.id == f"{env.name}/test/7/3"
    others = [{"split": Split.TRAIN}, {"index": 4}, {"seed": 8}]
    assert all(env.sample_pack(**identity | other).tasks != pack.tasks for other in others)


def test_a_longer_pack_begins_like_a_shorter_one():
    env = FrozenLakeObscure()
    short, long = (env.sample_pack(split=Split.TRAIN, index=0, num_tasks=n) for n in (4, 8))
    assert long.tasks[:4] == short.tasks


def test_a_pack_has_one_mapping_and_many_lakes_within_the_limits():
    env = FrozenLakeObscure(min_shortest_path=2, max_shortest_path=4)
    for index in range(50):
        specs = [t.spec for t in env.sample_pack(split=Split.TRAIN, index=index, num_tasks=8).tasks]
        assert len({spec.mapping for spec in specs}) == 1
        assert len({spec.rows for spec in specs}) > 1
        for spec in specs:
            lake = Lake(spec.rows)
            assert 4 <= lake.size <= 5
            assert 2 <= distances(lake)[lake.find("S")] <= 4


@pytest.mark.parametrize("protocol", ["natural", "compact"])
def test_a_mapping_for_each_task_or_one_for_all(protocol):
    own = FrozenLakeObscure(mapping_scope="per_task", protocol=protocol)
    specs = [t.spec for t in own.sample_pack(split=Split.TRAIN, index=0, num_tasks=40).tasks]
    assert len({spec.mapping for spec in specs}) > 12
    assert own.sample_pack(split=Split.TRAIN, index=0, num_tasks=3).tasks[2].spec == specs[2]
    drawn = own.sample_pack(split=Split.TRAIN, index=0, num_tasks=64).tasks
    few = FrozenLakeObscure(mapping_scope="per_task", mappings=(3, 8)).sample_pack(
        split=Split.TRAIN, index=0, num_tasks=64
    )
    assert {task.spec.mapping for task in few.tasks} == {MAPPINGS[3], MAPPINGS[8]}
    assert {task.spec.mapping for task in drawn} > {MAPPINGS[3], MAPPINGS[8]}
    assert _mappings(FrozenLakeObscure(mapping_scope="global"), 20) == {("down", "right", "up", "left")}
    assert _mappings(FrozenLakeObscure(mapping_scope="global", mappings=(7, 2)), 20) == {MAPPINGS[7]}


def test_the_rules_do_not_promise_what_does_not_hold():
    assert "The same assignment holds in related tasks" in FrozenLakeObscure().rules
    assert "Every task has an assignment of its own" in FrozenLakeObscure(mapping_scope="per_task").rules


def test_a_change_gives_every_later_task_another_mapping_and_one_to_all_where_it_is_shared():
    for scope in ("per_pack", "global", "per_task"):
        env = FrozenLakeObscure(mapping_scope=scope)
        pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=12)
        later = beside(env, HiddenRules).changed(pack, at=2, seed=0).tasks[2:]
        assert all(new.spec.mapping != old.spec.mapping for new, old in zip(later, pack.tasks[2:], strict=True))
        assert [new.spec.rows for new in later] == [old.spec.rows for old in pack.tasks[2:]]
        assert (len({task.spec.mapping for task in later}) == 1) == (scope != "per_task")


def test_stratified_packs_have_all_path_lengths_equally_often():
    env = FrozenLakeObscure(stratify=True)
    lengths = _path_lengths(env, 600)
    shares = [lengths.count(n) / len(lengths) for n in range(1, 7)]
    assert shares == pytest.approx([1 / 6] * 6, abs=0.05)
    natural = _path_lengths(FrozenLakeObscure(), 600)
    assert natural.count(6) < 0.1 * len(natural)


def test_stratified_packs_replace_lengths_that_a_size_does_not_have():
    env = FrozenLakeObscure(size_min=3, size_max=3, frozen_p_min=1, frozen_p_max=1, max_shortest_path=5, stratify=True)
    lengths = _path_lengths(env, 40)
    assert set(lengths) == {1, 2, 3, 4}
    assert lengths == _path_lengths(env, 40)


def _path_lengths(env: FrozenLakeObscure, num_tasks: int) -> list[int]:
    packs = (env.sample_pack(split=Split.TRAIN, index=i, num_tasks=4) for i in range(num_tasks // 4))
    lakes = (Lake(task.spec.rows) for pack in packs for task in pack.tasks)
    return [distances(lake)[lake.find("S")] for lake in lakes]


def test_all_mappings_are_drawn_and_only_those_that_may_be():
    drawn = _mappings(FrozenLakeObscure(size_min=3, size_max=3), 400)
    assert drawn == set(MAPPINGS)
    held_out = _mappings(FrozenLakeObscure(size_min=3, size_max=3, mappings=(0, 5)), 60)
    assert held_out == {MAPPINGS[0], MAPPINGS[5]}


def _mappings(env: FrozenLakeObscure, num_packs: int) -> set[tuple[str, ...]]:
    return {env.sample_pack(split=Split.TRAIN, index=i, num_tasks=1).tasks[0].spec.mapping for i in range(num_packs)}


def test_configurations_with_other_worlds_have_other_names_and_other_words_have_not():
    plain = FrozenLakeObscure().name
    others = (
        {"size_min": 5},
        {"size_max": 6},
        {"frozen_p_min": 0.5},
        {"frozen_p_max": 0.8},
        {"min_shortest_path": 2},
        {"max_shortest_path": 5},
        {"mappings": (1, 2)},
        {"mapping_scope": "per_task"},
        {"mapping_scope": "global"},
        {"stratify": True},
        {"labels": "random"},
    )
    names = [FrozenLakeObscure(**other).name for other in others]
    assert len({plain, *names}) == 1 + len(others)
    assert FrozenLakeObscure(feedback="positions", protocol="compact", length_penalty=0.5, lenient=True).name == plain
