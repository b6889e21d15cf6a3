"""FrozenLake-Obscure: rewards, endings, words, packs, and what it refuses."""

import random

import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.frozen_lake.lake import DIRECTIONS, draw_lake, neighbour
from cod_lightning.envs.frozen_lake.packs import LakeTask
from cod_lightning.errors import ConfigError
from cod_lightning.types import EpisodeStatus, Split, Task

ROWS = ("SFF", "HFF", "FFG")
RIGHT, DOWN, LEFT, UP = 1, 2, 3, 4
MAPPING = ("right", "down", "left", "up")


def _started(**parameters) -> tuple[FrozenLakeObscure, str]:
    env = FrozenLakeObscure(**{"size_min": 3, "size_max": 3, "protocol": "compact", **parameters})
    task = Task(id="0", seed=0, spec=LakeTask(rows=ROWS, mapping=MAPPING))
    return env, env.reset(options={"task": task})[0]


def _walk(env: FrozenLakeObscure, *codes: int):
    for code in codes[:-1]:
        assert env.step(f"<answer>Direction {code}</answer>")[1:4] == (0.0, False, False)
    return env.step(f"<answer>Direction {codes[-1]}</answer>")


# ---------------------------------------------------------------------- rewards and endings


def test_a_success_in_four_of_eight_turns_is_worth_95_hundredths():
    env, _ = _started(max_turns=8)
    _, reward, terminated, truncated, info = _walk(env, RIGHT, RIGHT, DOWN, DOWN)
    assert (reward, terminated, truncated, info) == (pytest.approx(1 - 0.1 * 4 / 8), True, False, {})
    assert env.success
    assert env.status is EpisodeStatus.COMPLETED


def test_without_a_length_penalty_every_success_is_worth_1():
    env, _ = _started(length_penalty=0.0)
    assert _walk(env, RIGHT, LEFT, RIGHT, RIGHT, DOWN, DOWN)[1] == 1.0


def test_a_hole_ends_the_task_with_nothing():
    env, _ = _started()
    feedback, reward, terminated, truncated, _ = _walk(env, DOWN)
    assert (feedback, reward, terminated, truncated) == ("hole 2=down", 0.0, True, False)
    assert not env.success
    assert env.status is EpisodeStatus.COMPLETED


def test_running_out_of_turns_truncates_with_nothing():
    env, _ = _started(max_turns=6)
    feedback, reward, terminated, truncated, _ = _walk(env, RIGHT, LEFT, RIGHT, LEFT, RIGHT, UP)
    assert (feedback, reward, terminated, truncated) == ("late 1=right 3=left 4=stay", 0.0, False, True)
    assert env.status is EpisodeStatus.TRUNCATED


def test_the_goal_on_the_last_turn_counts():
    env, _ = _started(max_turns=6)
    assert _walk(env, RIGHT, LEFT, RIGHT, RIGHT, DOWN, DOWN)[1] == pytest.approx(0.9)


@pytest.mark.parametrize(
    "action", ["", "up", "<answer>up</answer>", "<answer>Direction 5</answer>", "<answer>Direction 1</answer>" * 2]
)
def test_a_format_error_ends_the_task_at_once(action):
    env, _ = _started()
    _walk(env, RIGHT)
    feedback, reward, terminated, truncated, _ = env.step(action)
    assert (feedback, reward, terminated, truncated) == ("malformed 1=right", 0.0, True, False)
    assert env.status is EpisodeStatus.MALFORMED
    assert not env.success


def test_a_move_off_the_edge_stays_and_uses_a_turn():
    env, _ = _started()
    assert _walk(env, UP)[0] == "4=stay @(0,0)"
    assert _walk(env, RIGHT, RIGHT, DOWN, DOWN)[1] == pytest.approx(1 - 0.1 * 5 / 8)


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


# ---------------------------------------------------------------------- warnings


# ---------------------------------------------------------------------- words


def test_compact_words_show_the_lake_and_then_only_what_is_new():
    env, first = _started()
    assert (env.rules, first) == ("lake", "O(1,0) G(2,2) @(0,0)")
    assert _walk(env, RIGHT)[0] == "1=right @(0,1)"


def test_the_size_is_shown_where_it_varies():
    assert _started(size_max=4)[1] == "3x3 O(1,0) G(2,2) @(0,0)"


def test_positions_leave_the_direction_out_in_both_protocols():
    env, _ = _started(feedback="positions")
    assert _walk(env, RIGHT)[0] == "1:(0,0)>(0,1) @(0,1)"
    walked = "1:(0,0)>(0,1) 1:(0,1)>(0,2) 2:(0,2)>(1,2) 2:(1,2)>(2,2)"
    assert _walk(env, RIGHT, DOWN, DOWN)[0] == f"goal {walked}"
    assert set(walked.split()) <= set(beside(env, Vocabulary).words())
    env, _ = _started(feedback="positions", protocol="natural")
    stated = _walk(env, RIGHT)[0]
    assert "Direction 1 took you, from row 0, column 0 to row 0, column 1." in stated
    assert not any(direction in stated for direction in MAPPING)


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
    assert not any(direction in text for direction in MAPPING)


def test_sentences_tell_step_effect_map_and_goal():
    env, first = _started(protocol="natural")
    assert first.startswith("Step 1 of 8.\nMap:\n P \t _ \t _ \t\n O \t _ \t _ \t\n _ \t _ \t G \t\n")
    assert "The goal is at row 2, column 2" in first
    second = _walk(env, RIGHT)[0]
    assert second.startswith(
        "Step 2 of 8. Direction 1 leads right, from row 0, column 0 to row 0, column 1.\nMap:\n _ \t P "
    )
    assert "maybe that is the edge" in _walk(env, UP)[0]


@pytest.mark.parametrize("feedback", ["effect", "positions"])
def test_sentences_say_where_the_player_is_only_if_asked_to_and_are_read_back_alike(feedback):
    placed, placed_first = _started(protocol="natural", feedback=feedback, names_place=True)
    env, first = _started(protocol="natural", feedback=feedback)
    stated = "You are in row 0, column 0.\n"
    assert placed_first == first.replace("The goal is", f"{stated}The goal is")
    assert stated not in first
    assert placed.wording.shore(placed_first) == env.wording.shore(first)
    later = _walk(placed, RIGHT)[0]
    assert "\nYou are in row 0, column 1.\nThe goal is" in later
    assert placed.wording.position(later) == (0, 1)
    assert env.name == placed.name  # the same lakes


@pytest.mark.parametrize(
    ("codes", "named"),
    [
        ((RIGHT, RIGHT, DOWN, DOWN), "You reached the goal with 4 of 6 steps."),
        ((DOWN,), "You fell into a hole after 1 of 6 steps. Plan a safe path"),
        ((RIGHT, LEFT) * 3, "You ran out of steps (6 of 6 steps). Look for a shorter path."),
    ],
)
def test_the_feedback_in_sentences_says_how_it_ended_and_what_the_last_action_did(codes, named):
    feedback = _walk(_started(protocol="natural", max_turns=6)[0], *codes)[0]
    assert feedback.startswith(named)
    assert f". Direction {codes[-1]} leads" in feedback


@pytest.mark.parametrize(
    ("action", "rule"),
    [
        ("up", "<answer> occurs 0 times"),
        ("<answer>up</answer>", "the answer is not 'Direction' and a number"),
        ("<answer>Direction 5</answer>", "the number is not one of 1 to 4"),
    ],
)
def test_the_feedback_of_a_format_error_names_the_rule_and_the_form(action, rule):
    feedback = _started(protocol="natural")[0].step(action)[0]
    assert rule in feedback
    assert "<answer>Direction X</answer>" in feedback
    assert "over" in feedback


def test_the_rules_hide_the_mapping_and_are_the_same_for_all_tasks():
    env, _ = _started(protocol="natural")
    before = env.rules
    env.reset(seed=3)
    assert env.rules == before
    assert "8 steps" in before


def test_rendering_shows_the_player_on_ice_goal_and_hole():
    env, _ = _started()
    assert env.render().startswith(" P ")
    _walk(env, DOWN)
    assert env.render().splitlines()[1].startswith(" X ")
    env, _ = _started()
    _walk(env, RIGHT, RIGHT, DOWN, DOWN)
    assert env.render().splitlines()[2].endswith(" √ \t")


# ---------------------------------------------------------------------- what it refuses


def test_a_world_without_lakes_is_refused_and_never_hangs():
    env = FrozenLakeObscure(size_min=3, size_max=3, frozen_p_min=1, frozen_p_max=1, min_shortest_path=5, max_turns=8)
    with pytest.raises(ConfigError, match="none was found"):
        env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
