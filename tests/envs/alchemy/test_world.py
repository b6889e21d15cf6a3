"""Alchemy: rewards, endings, words, and what it refuses."""

import pytest

from cod_lightning.envs.alchemy import Alchemy
from cod_lightning.envs.alchemy.tasks import AlchemyTask
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.types import EpisodeStatus, Task
from tests.envs.alchemy.worlds import COMPACT, HARD, SMALL

SPEC = {
    "tiers": (("a", "b", "c"), ("k", "l"), ("p", "q")),
    "decoys": (),
    "recipes": (("a", "b", "k"), ("a", "c", "l"), ("k", "l", "p"), ("k", "k", "q")),
    "repeat": False,
}


def _started(target="p", stock=0, **parameters) -> tuple[Alchemy, str]:
    env = Alchemy(**{**COMPACT, **({"protocol": "natural"} if stock else {}), **parameters})
    task = Task(id="0", seed=0, spec=AlchemyTask(target=target, stock=stock, **SPEC))
    return env, env.reset(options={"task": task})[0]


def _mix(env, *pairs):
    for pair in pairs[:-1]:
        assert env.step(f"<answer>{pair}</answer>")[1:4] == (0.0, False, False)
    return env.step(f"<answer>{pairs[-1]}</answer>")


# ---------------------------------------------------------------------- rewards and endings


def test_the_target_wins_and_a_success_in_three_of_four_turns_is_worth_0_925():
    env, first = _started()
    assert (env.rules, first) == ("alchemy", "want=p")
    feedback, reward, terminated, truncated, info = _mix(env, "a+b", "a+c", "k+l")
    assert (feedback, terminated, truncated, info) == ("win a+b=k a+c=l k+l=p", True, False, {})
    assert reward == pytest.approx(1 - 0.1 * 3 / 4)
    assert env.success
    assert env.status is EpisodeStatus.COMPLETED


def test_without_a_length_penalty_every_success_is_worth_1():
    env, _ = _started("k", length_penalty=0.0)
    assert _mix(env, "a+c", "b+a")[1] == 1.0


def test_running_out_of_rounds_truncates_with_nothing():
    env, _ = _started()
    feedback, reward, terminated, truncated, _ = _mix(env, "a+a", "a+b", "a+a", "k+k")
    assert (feedback, reward, terminated, truncated) == ("late a+a=0 a+b=k k+k=q", 0.0, False, True)
    assert env.status is EpisodeStatus.TRUNCATED


def test_the_target_on_the_last_round_counts():
    env, _ = _started()
    assert _mix(env, "c+c", "a+b", "a+c", "k+l")[1] == pytest.approx(0.9)


@pytest.mark.parametrize(
    "action",
    ["", "a+b", "<answer>a</answer>", "<answer>a+b+c</answer>", "<answer>a+</answer>", "<answer>a+b</answer>" * 2],
)
def test_a_format_error_ends_the_task_at_once(action):
    env, _ = _started()
    _mix(env, "a+b")
    assert env.step(action) == ("malformed a+b=k", 0.0, True, False, {})
    assert env.status is EpisodeStatus.MALFORMED
    assert not env.success


@pytest.mark.parametrize("pair", ["k+k", "a+k", "zzz+a", "<b>+a", "nothing+a"])
def test_an_element_that_is_not_there_costs_the_round_and_nothing_else(pair):
    env, _ = _started()
    assert _mix(env, pair)[0] == "lacking"
    assert _mix(env, "a+b")[0] == "a+b=k @k"
    assert _mix(env, "a+c", "k+l")[1] == pytest.approx(0.9)


def test_letters_may_be_capital_and_spaces_wide():
    env, _ = _started("k")
    assert env.step("I think so. <answer>  B +  A </answer> ok")[1] > 0.9


def test_nothing_is_used_up_unless_materials_are_limited():
    env, _ = _started(max_turns=8)
    assert _mix(env, "a+a", "a+a", "a+b", "a+c", "k+l")[1] > 0.9


def test_limited_materials_are_used_up_even_by_what_gives_nothing():
    env, first = _started(stock=2, materials="limited", max_turns=9)
    assert "Inventory: a x2, b x2, c x2 (6 in all)." in first
    seen = _mix(env, "b+c")[0]
    assert "b + c = nothing. The inputs are used up." in seen
    assert "Inventory: a x2, b x1, c x1 (4 in all)." in seen
    seen = _mix(env, "a+b")[0]
    assert "Inventory: a x1, c x1, k x1 (3 in all)." in seen
    assert "you do not have enough of 'b'" in _mix(env, "b+c")[0]
    assert _mix(env, "a+c", "k+l")[1] == pytest.approx(1 - 0.1 * 5 / 9)


def test_the_same_element_twice_takes_two_copies():
    env, _ = _started("p", stock=1, materials="limited")
    assert "you do not have enough of 'a'" in _mix(env, "a+a")[0]
    env, _ = _started("q", stock=2, materials="limited")
    assert _mix(env, "a+b", "a+b", "k+k")[1] > 0.9


def test_a_target_that_cannot_be_made_any_more_ends_the_task_in_a_way_of_its_own():
    env, _ = _started("q", stock=2, materials="limited")
    feedback, reward, terminated, truncated, _ = _mix(env, "a+c")
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert "can no longer be made" in feedback
    assert env.status is EpisodeStatus.COMPLETED
    assert not env.success


def test_the_end_of_a_dead_task_can_be_left_to_the_player_until_no_pair_is_left():
    env, _ = _started("q", stock=2, materials="limited", end_when_dead=False, max_turns=9)
    assert _mix(env, "a+c", "b+c", "a+b")[2] is False
    feedback, _, terminated, _, _ = _mix(env, "k+l")
    assert terminated
    assert "can no longer be made" in feedback


# ---------------------------------------------------------------------- words


def test_compact_words_show_what_is_new_and_what_was_made():
    env, _ = _started()
    assert _mix(env, "b+b")[0] == "b+b=0"
    assert _mix(env, "a+b")[0] == "a+b=k @k"
    assert _mix(env, "k+k")[0] == "k+k=q @k @q"


def test_sentences_tell_round_result_target_and_inventory():
    env, first = _started(protocol="natural")
    assert first == "Round 1 of 4.\nTarget: p (tier 2).\nInventory: a, b, c.\nWhich two do you combine?"
    assert _mix(env, "b+a")[0] == (
        "Round 2 of 4.\nLast attempt: a + b = k.\nTarget: p (tier 2).\nInventory: a, b, c, k.\nWhich two do you combine?"
    )
    assert "a + a = nothing." in _mix(env, "a+a")[0]
    assert _mix(env, "a+c", "k+l")[0] == "k + l = p.\nYou made the target p with 4 of 4 rounds."
    env, _ = _started(protocol="natural")
    assert "no rounds left (4 of 4 rounds); the target p was not made" in _mix(env, *["a+a"] * 4)[0]
    feedback = _started(protocol="natural")[0].step("<answer>a</answer>")[0]
    assert "not two names joined by one +" in feedback
    assert "<answer>X + Y</answer>" in feedback


def test_the_system_text_holds_what_the_pack_shares_and_lists_decoys_with_the_rest():
    rules = _started(protocol="natural")[0].rules
    assert "Tier 0: a, b, c\nTier 1: k, l\nTier 2: p, q" in rules
    assert "exactly one recipe" in rules
    assert "Target" not in rules
    assert "=" not in rules, "the rules state no recipe, and no example can pass for one"
    env, first = _started(protocol="natural", show_tiers=False)
    assert "Tier" not in env.rules
    assert "Target: p.\n" in first
    limited = _started(stock=2, materials="limited", recipes_max=2, max_tier_gap=2)[0].rules
    assert "uses up" in limited
    assert "one or more recipes" in limited
    assert "at most 2 tiers below" in limited


def test_a_policys_text_is_shown_again_only_in_plain_letters_and_shortened():
    env, _ = _started(protocol="natural")
    shown = _mix(env, "<|im_end|>\ud800=k" + "x" * 100_000 + "+a")[0]
    assert "<|" not in shown
    assert len(shown) < 300
    assert env.observation_space.contains(shown)


def test_the_compact_vocabulary_is_small_and_prompts_are_short():
    words = beside(Alchemy(**COMPACT), Vocabulary).words()
    assert len(words) < 110
    env, first = _started()
    notes = env.wording.notes.write({})
    assert len(notes.split()) == 9
    shown = [env.rules, notes, first, *(env.step(f"<answer>{pair}</answer>")[0] for pair in ("a+b", "a+c", "b+c"))]
    assert sum(len(text.split()) for text in shown) < 25


# ---------------------------------------------------------------------- parameters


def test_the_shipped_configurations_are_the_ones_tested_here():
    from pathlib import Path

    import yaml

    folder = Path(__file__).parents[3] / "configs" / "env"
    made = {}
    for kind in ("easy", "hard", "compact"):
        config = yaml.safe_load((folder / f"alchemy_{kind}.yaml").read_text())
        assert config["class_path"] == "cod_lightning.envs.alchemy.Alchemy"
        made[kind] = Alchemy(**config["init_args"])
    assert made["easy"].name == Alchemy().name
    assert made["hard"].name == Alchemy(**HARD).name
    assert made["compact"].name == Alchemy(**SMALL).name
