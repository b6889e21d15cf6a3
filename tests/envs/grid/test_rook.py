"""Routes: entered cells, and the optimum against enumeration."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.grid.rook import best_route, entered, moves_from, reachable


def every_route(costs: np.ndarray, start, moves: int):
    """(stops, entered cells) of all routes."""
    routes = [((), [])]
    for _ in range(moves):
        routes = [
            ((*stops, to), cells + entered(stops[-1] if stops else start, to))
            for stops, cells in routes
            for to in moves_from(stops[-1] if stops else start, len(costs))
        ]
    return routes


def test_crossed_cells_and_the_destination_are_entered_but_not_the_origin():
    assert entered((2, 1), (2, 4)) == [(2, 2), (2, 3), (2, 4)]
    assert entered((2, 1), (2, 0)) == [(2, 0)]
    assert entered((3, 2), (0, 2)) == [(2, 2), (1, 2), (0, 2)]
    assert entered((0, 2), (1, 2)) == [(1, 2)]


@given(
    seed=st.integers(0, 2**32),
    side=st.integers(3, 4),
    moves=st.integers(1, 3),
    spent=st.integers(0, 400),
    count=st.integers(0, 5),
)
def test_the_best_route_is_the_best_of_all_routes(seed, side, moves, spent, count):
    rng = np.random.default_rng(seed)
    costs = rng.integers(0, 100, (side, side))
    start = (int(rng.integers(side)), int(rng.integers(side)))
    spent = spent if count else 0
    means: dict = {}
    for stops, cells in every_route(costs, start, moves):
        mean = (spent + sum(int(costs[cell]) for cell in cells)) / (count + len(cells))
        means[stops[-1]] = min(mean, means.get(stops[-1], 1e9))
    for goal in [(r, c) for r in range(side) for c in range(side)]:
        assert (goal in means) == reachable(start, goal, moves)
        if goal not in means:
            with pytest.raises(ValueError, match="moves lead from"):
                best_route(costs, start, goal, moves, spent, count)
            continue
        route = best_route(costs, start, goal, moves, spent, count)
        assert route.total / route.count == pytest.approx(means[goal], abs=1e-12)
        cells = [c for a, b in zip((start, *route.stops), route.stops, strict=False) for c in entered(a, b)]
        assert route.stops[-1] == goal
        assert (spent + sum(int(costs[cell]) for cell in cells), count + len(cells)) == (route.total, route.count)


def test_following_the_best_route_move_by_move_with_what_was_paid_stays_optimal():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        costs = rng.integers(0, 100, (9, 9))
        start, goal, spent, count = (0, 0), (5, 7), 0, 0
        whole = best_route(costs, start, goal, 4)
        for left in range(4, 0, -1):
            to = best_route(costs, start, goal, left, spent, count).stops[0]
            cells = entered(start, to)
            spent, count, start = spent + sum(int(costs[cell]) for cell in cells), count + len(cells), to
        assert spent / count == pytest.approx(whole.total / whole.count, abs=1e-12)
