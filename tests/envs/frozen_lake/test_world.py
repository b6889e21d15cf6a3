"""FrozenLake-Obscure: lakes, packs, moves, and what it hides and refuses; what it says is in dialogues.txt."""

import random

import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.frozen_lake.lake import DIRECTIONS, MAPPINGS, STEPS, Lake, distances, draw_lake, neighbour
from cod_lightning.types import Split
from tests.cases import each


@given(st.integers(), st.integers(3, 8))
def test_moves_are_gymnasiums_own(seed, size):
    lake = draw_lake(random.Random(seed), size, 0.65)
    theirs = FrozenLakeEnv(desc=list(lake.rows), is_slippery=False)
    theirs.reset(seed=0)
    for action in random.Random(seed).choices(range(4), k=12):
        before = int(theirs.s)
        state, _, terminated, _, _ = theirs.step(action)
        assert neighbour(divmod(before, size), DIRECTIONS[action], size) == divmod(state, size)
        if terminated:
            break


@pytest.mark.parametrize("protocol", ["natural", "compact"])
@given(seed=st.integers(0, 2**31), codes=st.lists(st.integers(1, 4), min_size=8, max_size=8))
def test_positions_never_name_a_direction_however_one_walks(protocol, seed, codes):
    env = FrozenLakeObscure(size_min=3, size_max=5, feedback="positions", protocol=protocol)
    shown, ended = [env.reset(seed=seed)[0]], False
    while not ended:
        stated, _, terminated, truncated, _ = env.step(f"<answer>Direction {codes[len(shown) - 1]}</answer>")
        shown.append(stated)
        ended = terminated or truncated
    text = "\n".join(shown).replace(" kept you at row", "")  # the verb, of a move off the edge
    assert not any(direction in text for direction in DIRECTIONS)


@each("feedback", ["effect", "positions"])
def test_where_the_player_is_said_to_be_is_where_it_is_on_the_map(feedback):
    placed, env = (FrozenLakeObscure(feedback=feedback, names_place=places) for places in (True, False))
    task = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks[0]
    assert env.name == placed.name, "the same lakes"
    said, shown = placed.reset(options={"task": task})[0], env.reset(options={"task": task})[0]
    for answer in ("<answer>Direction 1</answer>", "<answer>Direction 2</answer>"):
        row, column = env.wording.position(shown)
        place = f"You are in row {row}, column {column}.\n"
        assert said.replace(place, "") == shown != said
        assert placed.wording.position(said) == (row, column)
        said, shown = placed.step(answer)[0], env.step(answer)[0]


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
