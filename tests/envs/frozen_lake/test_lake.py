"""Lakes: drawn, solved, and dealt to the splits; packs of them: mappings by scope, path lengths."""

import random

from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.frozen_lake.lake import MAPPINGS, STEPS, Lake, distances, draw_lake
from cod_lightning.types import Split

LAKES = st.builds(
    lambda seed, size, p: draw_lake(random.Random(seed), size, p), st.integers(), st.integers(3, 8), st.floats(0, 1)
)


@given(LAKES)
def test_a_lake_is_square_with_one_start_and_one_goal(lake: Lake):
    cells = "".join(lake.rows)
    assert len(cells) == lake.size**2
    assert (cells.count("S"), cells.count("G")) == (1, 1)
    assert set(cells) <= set("SGFH")


@given(LAKES)
def test_distances_are_those_of_repeated_relaxation(lake: Lake):
    holes = set(lake.holes())
    safe = {(r, c) for r in range(lake.size) for c in range(lake.size)} - holes
    longest = lake.size**2
    expected = {cell: 0 if cell == lake.find("G") else longest for cell in safe}
    for _ in range(longest):
        near = {
            (r, c): min(expected.get((r + down, c + right), longest) for down, right in STEPS.values()) for r, c in safe
        }
        expected = {cell: min(expected[cell], 1 + near[cell]) for cell in safe}
    assert distances(lake) == {cell: n for cell, n in expected.items() if n < longest}


def test_a_pack_has_one_mapping_of_all_that_may_be_and_many_lakes_within_the_limits():
    env = FrozenLakeObscure(max_shortest_path=4)
    for index in range(50):
        specs = [t.spec for t in env.sample_pack(split=Split.TRAIN, index=index, num_tasks=8).tasks]
        assert len({spec.mapping for spec in specs}) == 1
        assert len({spec.rows for spec in specs}) > 1
        for spec in specs:
            lake = Lake(spec.rows)
            assert 4 <= lake.size <= 5
            assert 1 <= distances(lake)[lake.find("S")] <= 4
    drawn = _mappings(FrozenLakeObscure(size_min=3, size_max=3), 400)
    assert drawn == set(MAPPINGS)
    held_out = _mappings(FrozenLakeObscure(size_min=3, size_max=3, mappings=(0, 5)), 60)
    assert held_out == {MAPPINGS[0], MAPPINGS[5]}


def _mappings(env: FrozenLakeObscure, num_packs: int) -> set[tuple[str, ...]]:
    return {env.sample_pack(split=Split.TRAIN, index=i, num_tasks=1).tasks[0].spec.mapping for i in range(num_packs)}
