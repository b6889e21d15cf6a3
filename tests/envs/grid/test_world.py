"""Grid navigation: what is revealed, packs; what it says is in dialogues.txt."""

import pytest

from cod_lightning.envs.grid import GridNavigation
from cod_lightning.envs.grid.chart import drawn_chart, read_chart
from cod_lightning.envs.grid.draws import GridTask
from cod_lightning.envs.grid.rook import entered, reachable
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split, Task
from tests.cases import each
from tests.envs.cases import WORLDS

COMPACT = WORLDS["grid-compact"].make
COSTS = tuple(tuple(10 * row + column for column in range(5)) for row in range(5))


def started(costs=COSTS, goal=(4, 4), **parameters) -> tuple[GridNavigation, str]:
    env = GridNavigation(**parameters)
    task = Task(id="0", seed=0, spec=GridTask(costs=costs, start=(2, 0), goal=goal, rounds=3))
    return env, env.reset(options={"task": task})[0]


def observed(text: str) -> dict:
    return read_chart(text.partition("Observed map:\n")[2])[1]


@each("radius", [0, 1, 2])
def test_every_cell_within_the_radius_of_an_entered_cell_is_revealed_and_no_other(radius):
    env, first = started(reveal_radius=radius)
    assert observed(first) == {}
    observation = env.step("<answer>2,2</answer>")[0]
    near = entered((2, 0), (2, 2))
    expected = {
        (r, c): COSTS[r][c]
        for r in range(5)
        for c in range(5)
        if any(max(abs(r - x), abs(c - y)) <= radius for x, y in near)
    }
    assert observed(observation) == expected


def test_a_malformed_feedback_is_short_even_with_the_largest_map_known():
    env, _ = started(((99,) * 16,) * 16, (4, 0), side_max=16, reveal_radius=16)
    env.step("<answer>1,0</answer>")
    assert len(env.step("<answer>" * 1000)[0]) < 1000
    assert "?" not in env._view.chart.text()


@each("split", list(Split))
def test_packs_hold_the_drawn_ranges_and_solvable_tasks(split):
    env = GridNavigation(side_min=8, side_max=12, rounds_min=3, rounds_max=5)
    specs = [task.spec for i in range(40) for task in env.sample_pack(split=split, index=i, num_tasks=4).tasks]
    assert {len(spec.costs) for spec in specs} == set(range(8, 13))
    assert {spec.rounds for spec in specs} == {3, 4, 5}
    assert all(spec.start != spec.goal and reachable(spec.start, spec.goal, spec.rounds) for spec in specs)


def test_all_lanes_occur_in_every_split():
    env = COMPACT()
    for split in Split:
        packs = [env.sample_pack(split=split, index=i, num_tasks=1) for i in range(500)]
        assert len({pack.tasks[0].spec.costs for pack in packs}) == 50, (
            "the cheapest and the dearest of three in four rows"
        )


def test_a_drawn_map_is_read_back():
    known = {(0, 1): 7, (2, 2): 99}
    assert read_chart(drawn_chart(known, 3) + "\n```\nmore") == (3, known)
    for broken in ("", "0 1\n0 ? ?", "  0 1\n0 ?\n1 ? ?"):
        with pytest.raises(ValueError, match="no map"):
            read_chart(broken)


@each("env", [GridNavigation(), COMPACT()])
def test_a_split_without_maps_or_tasks_is_an_error_with_a_remedy(env, monkeypatch):
    monkeypatch.setattr("cod_lightning.envs.grid.draws.split_of_text", lambda text: Split.TRAIN)
    with pytest.raises(ConfigError) as caught:
        env.sample_pack(split=Split.TEST, index=0, num_tasks=1)
    assert caught.value.key == "data.env.side_min"
