"""Grid navigation: moves, rewards, endings, what is revealed, words, packs."""

import copy

import pytest

from cod_lightning.envs.base import HiddenRules, beside
from cod_lightning.envs.grid import GridNavigation
from cod_lightning.envs.grid.chart import drawn_chart, read_chart
from cod_lightning.envs.grid.draws import GridTask
from cod_lightning.envs.grid.rook import entered, reachable
from cod_lightning.errors import ConfigError
from cod_lightning.types import EpisodeStatus, Split, Task
from tests.envs.cases import WORLDS

HARD = WORLDS["grid-hard"].make
COMPACT = WORLDS["grid-compact"].make
COSTS = tuple(tuple(10 * row + column for column in range(5)) for row in range(5))


def _task(costs=COSTS, start=(0, 0), goal=(4, 4), rounds=3) -> Task:
    return Task(id="0", seed=0, spec=GridTask(costs=costs, start=start, goal=goal, rounds=rounds))


def _started(task: Task | None = None, **parameters) -> tuple[GridNavigation, str]:
    env = GridNavigation(**parameters)
    return env, env.reset(options={"task": task or _task()})[0]


def _go(env: GridNavigation, *cells: str):
    return [env.step(f"<answer>{cell}</answer>") for cell in cells][-1]


def _map(text: str) -> dict:
    return read_chart(text.partition("Observed map:\n")[2])[1]


def test_the_reward_is_one_minus_the_mean_cost_of_entered_cells():
    env, first = _started()
    assert "Move 1 of 3.\nYou are at 0,0; the target is 4,4." in first
    observation, reward, terminated, truncated, info = _go(env, "0,2")
    assert (reward, terminated, truncated, info) == (0.0, False, False, {})
    assert "0,1 (1) 0,2 (2). Loss so far: 0.0150." in observation
    _go(env, "4,2")
    feedback, reward, terminated, truncated, _ = _go(env, "4,4")
    loss = (1 + 2 + 12 + 22 + 32 + 42 + 43 + 44) / 8 / 100
    assert reward == pytest.approx(1 - loss)
    assert (terminated, truncated, env.success, env.status) == (True, False, True, EpisodeStatus.COMPLETED)
    assert f"loss {loss:.4f}, reward {1 - loss:.4f}" in feedback
    assert "Observed map:" in feedback


def test_a_cell_entered_twice_counts_twice():
    env, _ = _started(_task(start=(1, 0), goal=(1, 2), rounds=3))
    assert _go(env, "1,2", "1,1", "1,2")[1] == pytest.approx(1 - (11 + 12 + 11 + 12) / 400)


def test_reaching_the_target_early_does_not_end_the_task():
    env, _ = _started(_task(goal=(0, 4)))
    assert not _go(env, "0,4")[2]
    assert not env.success


def test_ending_elsewhere_is_a_miss_with_position_and_target():
    env, _ = _started(_task(rounds=1, goal=(0, 4)), rounds_min=1)
    feedback, reward, terminated, truncated, _ = _go(env, "0,3")
    assert (reward, terminated, truncated, env.success, env.status) == (
        0.0,
        True,
        False,
        False,
        EpisodeStatus.COMPLETED,
    )
    assert "You ended at 0,3, not on the target 0,4: reward 0." in feedback
    assert _map(feedback)[1, 4] == 14


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("no", "<answer> occurs 0 times"),
        ("<answer>1,0</answer><answer>1,0</answer>", "<answer> occurs 2 times"),
        ("<answer>(1,0)</answer>", "not row,column"),
        ("<answer>1 0</answer>", "not row,column"),
        ("<answer>1.0,0</answer>", "not row,column"),
        ("<answer>-1,0</answer>", "no such cell"),
        ("<answer>5,0</answer>", "no such cell"),
        ("<answer>0,0</answer>", "you stand on that cell"),
        ("<answer>1,1</answer>", "not in your row or column"),
        (f"<answer>1{' ' * 100_000},0</answer>", "not row,column"),
    ],
)
def test_an_invalid_action_ends_the_task_and_names_the_rule(answer, complaint):
    env, _ = _started()
    feedback, reward, terminated, truncated, _ = env.step(answer)
    assert (reward, terminated, truncated, env.status) == (0.0, True, False, EpisodeStatus.MALFORMED)
    assert complaint in feedback
    assert "Expected <answer>row,column</answer>" in feedback
    assert "Observed map:" in feedback


def test_spaces_and_leading_zeros_in_an_answer_are_fine():
    env, _ = _started()
    assert "You are at 0,3;" in env.step("along the top. <answer> 00 , 3 </answer>")[0]


@pytest.mark.parametrize("radius", [0, 1, 2])
def test_every_cell_within_the_radius_of_an_entered_cell_is_revealed_and_no_other(radius):
    env, first = _started(_task(start=(2, 0)), reveal_radius=radius)
    assert _map(first) == {}
    observation = _go(env, "2,2")[0]
    near = entered((2, 0), (2, 2))
    expected = {
        (r, c): COSTS[r][c]
        for r in range(5)
        for c in range(5)
        if any(max(abs(r - x), abs(c - y)) <= radius for x, y in near)
    }
    assert _map(observation) == expected


def test_with_world_memory_the_map_stays_for_the_pack_and_without_it_every_task_starts_empty():
    for memory in (True, False):
        env, _ = _started(world_memory=memory)
        _go(env, "0,4", "4,4", "4,0")
        again, _ = env.reset(options={"task": _task(goal=(0, 2))})
        assert bool(_map(again)) is memory
        other, _ = env.reset(options={"task": _task(costs=COSTS[::-1])})
        assert _map(other) == {}, "another map is not known"


def test_a_copy_sees_nothing_of_what_the_original_reveals():
    env, _ = _started()
    twin = copy.deepcopy(env)
    _go(env, "0,4")
    assert "?" in twin.render()
    assert not _map(twin.reset(options={"task": _task()})[0])


def test_a_malformed_feedback_is_short_even_with_the_largest_map_known():
    costs = tuple((99,) * 16 for _ in range(16))
    env, _ = _started(_task(costs, goal=(4, 0), rounds=2), side_max=16, reveal_radius=16)
    _go(env, "1,0")
    assert len(env.step("<answer>" * 1000)[0]) < 1000
    assert "?" not in env.render().partition("\n")[2]


def test_rules_tell_what_holds_with_these_parameters():
    def rules(**parameters):
        return _started(**parameters)[0].rules

    assert "at most 1 row and 1 column away" in rules()
    assert "at most 2 rows and 2 columns away" in rules(reveal_radius=2)
    assert "stays on the observed map in later tasks" in rules()
    assert "starts with an empty map" in rules(world_memory=False)


@pytest.mark.parametrize("split", list(Split))
def test_packs_hold_the_drawn_ranges_and_solvable_tasks(split):
    env = GridNavigation(side_min=8, side_max=12, rounds_min=3, rounds_max=5)
    specs = [task.spec for i in range(40) for task in env.sample_pack(split=split, index=i, num_tasks=4).tasks]
    assert {len(spec.costs) for spec in specs} == set(range(8, 13))
    assert {spec.rounds for spec in specs} == {3, 4, 5}
    assert all(spec.start != spec.goal and reachable(spec.start, spec.goal, spec.rounds) for spec in specs)


def test_single_moves_lead_to_targets_in_line():
    env = GridNavigation(rounds_min=1, rounds_max=1)
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=64)
    assert all(reachable(task.spec.start, task.spec.goal, 1) for task in pack.tasks)


def test_all_lanes_occur_in_every_split():
    env = COMPACT()
    for split in Split:
        packs = [env.sample_pack(split=split, index=i, num_tasks=1) for i in range(500)]
        assert len({pack.tasks[0].spec.costs for pack in packs}) == 50, (
            "the cheapest and the dearest of three in four rows"
        )


def test_a_changed_map_keeps_the_tasks_its_side_and_its_split():
    for env in (GridNavigation(), HARD(), COMPACT()):
        pack = env.sample_pack(split=Split.TEST, index=0, num_tasks=4)
        changed = beside(env, HiddenRules).changed(pack, at=1, seed=0)
        for old, new in zip(pack.tasks[1:], changed.tasks[1:], strict=True):
            assert old.spec.costs != new.spec.costs
            assert len(old.spec.costs) == len(new.spec.costs)
            assert (old.spec.start, old.spec.goal, old.spec.rounds) == (new.spec.start, new.spec.goal, new.spec.rounds)
        assert len({task.spec.costs for task in changed.tasks[1:]}) == 1


def test_compact_words_say_the_same_in_fewer_words():
    env = COMPACT()
    costs = ((50,) * 4, (0,) * 4, (99,) * 4, (50,) * 4)
    first, _ = env.reset(options={"task": _task(costs, (0, 1), (3, 3))})
    assert (env.rules, first) == ("grid", "moves=3 at(0,1) to(3,3)")
    assert _go(env, "1,1")[0] == "row1=0 at(1,1) moves=2"
    assert _go(env, "1,3")[0] == "row1=0 at(1,3) moves=1"
    feedback, reward, *_ = _go(env, "3,3")
    assert feedback == "goal loss=2 row1=0 row2=99 row3=50"
    assert reward == pytest.approx(1 - (0 + 0 + 0 + 99 + 50) / 5 / 100)
    env.reset(options={"task": _task(costs, (0, 1), (3, 3))})
    assert env.step("?")[0] == "malformed"
    env.reset(options={"task": _task(costs, (0, 1), (3, 3))})
    assert _go(env, "1,1", "1,3", "1,1")[0] == "miss at(1,1) to(3,3) row1=0"


def test_a_drawn_map_is_read_back():
    known = {(0, 1): 7, (2, 2): 99}
    assert read_chart(drawn_chart(known, 3) + "\n```\nmore") == (3, known)
    for broken in ("", "0 1\n0 ? ?", "  0 1\n0 ?\n1 ? ?"):
        with pytest.raises(ValueError, match="no map"):
            read_chart(broken)


@pytest.mark.parametrize("env", [GridNavigation(), COMPACT()])
def test_a_split_without_maps_or_tasks_is_an_error_with_a_remedy(env, monkeypatch):
    monkeypatch.setattr("cod_lightning.envs.grid.draws.split_of_text", lambda text: Split.TRAIN)
    with pytest.raises(ConfigError) as caught:
        env.sample_pack(split=Split.TEST, index=0, num_tasks=1)
    assert caught.value.key == "data.env.side_min"
