"""Maps of costs: numerics, levels, lanes, and what is expected of unknown cells."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.grid.estimate import SCALE, Prior, estimate
from cod_lightning.envs.grid.field import hill_costs, lane_costs, plain, text_of, units
from tests.cases import each

HILLS = Prior(lanes=False, mean=25.0)


@given(seed=st.integers(0, 2**32), side=st.integers(3, 16), hills=st.integers(1, 8), wide=st.floats(0.15, 0.5))
def test_hills_are_whole_numbers_from_0_to_99_with_both_ends_reached(seed, side, hills, wide):
    costs = hill_costs(np.random.default_rng(seed), side, hills, 0.1, wide)
    assert costs.shape == (side, side)
    assert (costs.min(), costs.max()) == (0, 99)


def test_one_round_hill_falls_off_as_a_squared_gaussian_of_its_distance():
    rng = np.random.default_rng(5)
    costs = hill_costs(rng, 16, 1, 0.2, 0.2)
    column, row = np.random.default_rng(5).random(2) * 15
    y, x = np.mgrid[:16, :16]
    height = np.exp(-0.5 * ((x - column) ** 2 + (y - row) ** 2) / (0.2 * 15) ** 2)
    share = (height - height.min()) / (height.max() - height.min())
    assert np.abs(costs - 99 * share**2).max() <= 0.5 + 1e-9


def test_lanes_have_one_cost_a_row_and_hold_the_cheapest_and_the_dearest():
    for seed in range(30):
        costs = lane_costs(np.random.default_rng(seed), 4)
        assert (costs == costs[:, :1]).all()
        assert {0, 99} <= set(costs[:, 0].tolist()) <= {0, 50, 99}


def test_a_map_has_one_text_and_plain_integers_in_units_of_rows_or_cells():
    costs = plain(np.array([[0, 5], [99, 7]]))
    assert all(type(cost) is int for row in costs for cost in row)
    assert text_of(costs) == "0 5/99 7"
    assert units(3, True)[1] == ((1, 0), (1, 1), (1, 2))
    assert len(units(3, False)) == 9


def test_known_cells_are_priced_exactly_and_others_a_tenth_below_the_guess():
    assert (estimate({}, 3, HILLS) == SCALE * 25 - 1).all()
    known = {(0, 0): 80, (2, 1): 0}
    guess = estimate(known, 3, HILLS)
    assert (guess[0, 0], guess[2, 1]) == (800, 0)
    assert guess.min() >= -1
    assert guess.max() <= SCALE * 99


def test_near_an_expensive_cell_costs_are_guessed_high_and_far_away_as_before():
    guess = estimate({(0, 0): 99}, 12, HILLS)
    assert guess[0, 1] > 700
    assert guess[0, 1] > guess[0, 2] > guess[0, 4]
    assert guess[11, 11] == SCALE * 25 - 1


def test_one_cell_of_a_lane_tells_the_lane_and_cells_off_the_grid_tell_nothing():
    guess = estimate({(1, 3): 99, (9, 0): 0}, 4, Prior(lanes=True, mean=50.0))
    assert guess[:, 0].tolist() == [499, 990, 499, 499]


def test_guessed_maps_are_nearer_the_truth_than_the_mean():
    errors, plain_errors = [], []
    for seed in range(20):
        costs = hill_costs(np.random.default_rng(seed), 10, 4, 0.15, 0.45)
        known = {(r, c): int(costs[r, c]) for r in (2, 6) for c in range(10)}
        errors.append(np.abs(estimate(known, 10, HILLS) / SCALE - costs).mean())
        plain_errors.append(np.abs(25 - costs).mean())
    assert np.mean(errors) < 0.5 * np.mean(plain_errors)


@each("side", [3, 16])
def test_a_fully_known_map_is_returned_as_it_is(side):
    costs = hill_costs(np.random.default_rng(0), side, 4, 0.15, 0.45)
    known = {(r, c): int(costs[r, c]) for r in range(side) for c in range(side)}
    assert (estimate(known, side, HILLS) == SCALE * costs).all()
