"""Packs of lakes: identities, mappings by scope, path lengths, names."""

from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.frozen_lake.lake import MAPPINGS, Lake, distances
from cod_lightning.types import Split


def test_a_pack_has_one_mapping_and_many_lakes_within_the_limits():
    env = FrozenLakeObscure(max_shortest_path=4)
    for index in range(50):
        specs = [t.spec for t in env.sample_pack(split=Split.TRAIN, index=index, num_tasks=8).tasks]
        assert len({spec.mapping for spec in specs}) == 1
        assert len({spec.rows for spec in specs}) > 1
        for spec in specs:
            lake = Lake(spec.rows)
            assert 4 <= lake.size <= 5
            assert 1 <= distances(lake)[lake.find("S")] <= 4


def test_all_mappings_are_drawn_and_only_those_that_may_be():
    drawn = _mappings(FrozenLakeObscure(size_min=3, size_max=3), 400)
    assert drawn == set(MAPPINGS)
    held_out = _mappings(FrozenLakeObscure(size_min=3, size_max=3, mappings=(0, 5)), 60)
    assert held_out == {MAPPINGS[0], MAPPINGS[5]}


def _mappings(env: FrozenLakeObscure, num_packs: int) -> set[tuple[str, ...]]:
    return {env.sample_pack(split=Split.TRAIN, index=i, num_tasks=1).tasks[0].spec.mapping for i in range(num_packs)}
