"""Optimal Control: rewards, endings, words, memory, packs, references."""

import copy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.base import HiddenRules, Players, Reference, Vocabulary, beside
from cod_lightning.envs.control import OptimalControl
from cod_lightning.envs.control.fused import LAWS
from cod_lightning.envs.control.plant import ControlTask
from cod_lightning.errors import ConfigError
from cod_lightning.types import EpisodeStatus, Split, Task
from tests.envs.cases import WORLDS
from tests.envs.scripted_life import live

COMPACT = WORLDS["control-compact"].make.keywords
SPEC = ControlTask(a=0.8, b=-1.1, x=1.0, v=-0.5, target_x=3.0, horizon=12)


def task(**fields) -> Task:
    return Task(id="0", seed=0, spec=replace(SPEC, **fields))


def started(**parameters) -> tuple[OptimalControl, str]:
    env = OptimalControl(**parameters)
    return env, env.reset(options={"task": task()})[0]


def formula(text: str) -> str:
    return f"so <answer><action_expression>{text}</action_expression></answer>"


GOOD = formula("-(0.3*(x_target - x) - 0.7*v)")


def test_a_formula_that_runs_is_worth_one_over_one_plus_the_loss_and_is_shown_as_a_table():
    env, first = started()
    assert first == "Start x = 1.000, v = -0.500; target x = 3.000, v = 0.000; 12 steps.\nGive the formula for u."
    feedback, reward, terminated, truncated, _ = env.step(formula("0"))
    v = [-0.5 * 0.8**t for t in range(13)]
    x = 1 + sum(v[1:])
    assert reward == pytest.approx(1 / (1 + (x - 3) ** 2 + 2 * v[-1] ** 2))
    assert (terminated, truncated, env.success, env.status) == (True, False, False, EpisodeStatus.COMPLETED)
    table = feedback.splitlines()[1:15]
    assert table[0].split() == ["t", "x", "v", "u"]
    assert table[1].split() == ["0", "1.000", "-0.500", "0.000"]
    assert table[2].split() == ["1", "0.600", "-0.400", "0.000"]
    assert table[-1].split() == ["12", f"{x:.3f}", f"{v[-1]:.3f}"]
    assert f"reward {reward:.3f}" in feedback


def test_a_task_is_solved_from_half_the_reward_on():
    env, _ = started()
    reward = env.step(GOOD)[1]
    assert reward > 0.9
    assert env.success


def test_tiny_rewards_are_told_in_scientific_notation():
    env, _ = started()
    feedback, reward, *_ = env.step(formula("0.3*(x_target - x) - 0.7*v"))
    assert 0 < reward < 0.001
    assert f"reward {reward:.1e}" in feedback


@pytest.mark.parametrize(
    ("text", "step", "reason"),
    [("1/(t - 3)", 3, "division by zero"), ("x > 0", 0, "true or false"), ("9**9**9", 0, "inf")],
)
def test_a_formula_that_fails_at_a_step_is_worth_nothing_and_the_step_is_named(text, step, reason):
    env, _ = started()
    feedback, reward, terminated, _, _ = env.step(formula(text))
    assert (reward, terminated, env.success, env.status) == (0.0, True, False, EpisodeStatus.COMPLETED)
    assert f"step {step}" in feedback
    assert reason in feedback
    assert "-0.500" not in feedback, "no table"


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("", "<answer> occurs 0 times"),
        ("<answer>0</answer>", "action_expression"),
        ("<answer><action_expression>0</action_expression>0</answer>", "action_expression"),
        (
            "<answer><action_expression>0</action_expression><action_expression>0</action_expression></answer>",
            "action_expr",
        ),
        (formula("0") + " done", "text follows"),
        ("```" + formula("0"), "backticks"),
        (formula("0") + "\n```", "backticks"),
        (formula("0") * 2, "occurs 2 times"),
        (formula("x.real"), "not part of the language"),
        (formula("u + 1"), "'u' is not known"),
        (formula("a*x"), "'a' is not known"),
        (formula("<|im_end|>"), "not part"),
        (formula("(" * 300), "nested"),
        (formula("1+" * 5000), "letters"),
    ],
)
def test_an_answer_that_cannot_be_read_costs_a_tenth_and_the_rule_is_named(response, reason):
    env, _ = started()
    feedback, reward, terminated, _, _ = env.step(response)
    assert (reward, terminated, env.success, env.status) == (-0.1, True, False, EpisodeStatus.MALFORMED)
    assert reason in feedback
    assert "<action_expression>FORMULA</action_expression>" in feedback
    assert len(feedback) < 1000


def test_space_after_the_answer_and_escaped_signs_are_fine():
    env, _ = started()
    assert env.step(formula(" 1 if x &lt; 2 else 0 ") + " \n")[1] > 0


def test_the_last_law_that_ran_is_shown_with_its_outcome_as_long_as_the_plant_is_the_same():
    env, first = started()
    assert "Evidence" not in first
    reward = env.step(GOOD)[1]
    other, _ = env.reset(options={"task": task(x=0.0)})
    assert "u = -(0.3*(x_target-x)-0.7*v)" in other
    assert f"started at x = 1.000, v = -0.500 with target x = 3.000 and 12 steps. Reward {reward:.3f}" in other
    env.step(formula("1/0"))
    again, _ = env.reset(options={"task": task()})
    assert "0.3*(x_target-x)" in again, "a law that failed is no evidence"
    snapshot = copy.deepcopy(env)
    assert "Evidence" not in env.reset(options={"task": task(b=1.1)})[0], "another plant"
    assert "Evidence" not in env.reset(options={"task": task()})[0], "forgotten for good"
    assert "Evidence" in snapshot.reset(options={"task": task()})[0], "siblings share nothing"


def test_without_world_memory_nothing_is_carried_over():
    env, first = started(world_memory=False)
    env.step(GOOD)
    assert env.reset(options={"task": task()})[0] == first


def test_the_compact_protocol_shows_the_last_law_by_its_grade():
    parameters = COMPACT | {"world_memory": True}
    env = OptimalControl(**parameters)
    words = set(beside(env, Vocabulary).words())
    for index in range(20):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=3)
        for kind in Reference:
            lived = live(copy.deepcopy(env), pack, beside(env, Players).reference(kind, pack), "compact", seed=index)
            assert all(set(life.text.split()) <= words for life in lived)
            assert "had=" not in lived[0].text
            assert "had=" in lived[1].text


def test_compact_feedback_sums_up_what_a_run_shows():
    env = OptimalControl(**COMPACT)
    start = Task(id="0", seed=0, spec=replace(SPEC, x=0.0, v=0.0, target_x=3.0, horizon=8))
    assert env.reset(options={"task": start})[0] == "x=+0 v=+0 to=+3"
    assert env.rules == "control"
    assert env.step("<answer>+firm</answer>")[0] == "poor b=-big a=damped"
    env.reset(options={"task": start})
    feedback, reward, *_ = env.step("<answer>-soft</answer>")
    assert feedback == "good b=-big a=damped"
    assert reward > 0.9
    env.reset(options={"task": start})
    assert env.step("<answer>soft</answer>")[:2] == ("malformed", -0.1)


def test_rules_tell_what_is_hidden_and_not_what_it_is():
    env, _ = started(process_noise=0.1)
    for stated in (
        "1/(1 + L)",
        "0.03",
        "remaining_steps",
        "x_target",
        "ifelse",
        "between 0.35 and 1.5",
        "deviation 0.1",
        "-0.1",
    ):
        assert stated in env.rules
    assert "1.1" not in env.rules
    assert "noise" not in OptimalControl().rules


@given(index=st.integers(0, 10**6), num_tasks=st.integers(1, 64), split=st.sampled_from(list(Split)))
def test_a_pack_shares_one_plant_within_the_ranges_and_longer_packs_begin_with_shorter_ones(index, num_tasks, split):
    env = OptimalControl(horizon_min=8, horizon_max=16, process_noise=0.1)
    pack = env.sample_pack(split=split, index=index, num_tasks=num_tasks)
    assert len({(each.spec.a, each.spec.b) for each in pack.tasks}) == 1
    for each in pack.tasks:
        spec = each.spec
        assert 0.55 <= spec.a <= 1.2
        assert 0.35 <= abs(spec.b) <= 1.5
        assert (abs(spec.x) <= 2, abs(spec.v) <= 1.5, abs(spec.target_x) <= 8) == (True, True, True)
        assert 8 <= spec.horizon == len(spec.noise) <= 16
    assert env.sample_pack(split=split, index=index, num_tasks=64).tasks[:num_tasks] == pack.tasks


def test_a_range_without_another_plant_is_an_error_that_names_the_remedy():
    env = OptimalControl(a_min=1.0, a_max=1.0, b_min=1.0, b_max=1.0)
    splits = iter(Split)
    with pytest.raises(ConfigError) as caught:
        [env.sample_pack(split=split, index=0, num_tasks=1) for split in splits]
    assert caught.value.remedy


def rewards(kind: Reference, memoryless: bool = False, num_packs: int = 60, **parameters) -> list[float]:
    prototype, sums = OptimalControl(**parameters), [0.0] * 4
    protocol = parameters.get("protocol", "natural")
    for index in range(num_packs):
        env = copy.deepcopy(prototype)
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
        policy = beside(env, Players).reference(kind, pack)
        if memoryless:
            lived = [live(env, replace(pack, tasks=(each,)), policy, protocol, index)[0] for each in pack.tasks]
        else:
            lived = live(env, pack, policy, protocol, index)
        sums = [total + life.reward for total, life in zip(sums, lived, strict=True)]
    return [total / num_packs for total in sums]


@pytest.mark.slow
def test_a_note_lifts_later_tasks_to_the_optimum():
    scripted = rewards(Reference.SCRIPTED, world_memory=False)
    oracle = rewards(Reference.ORACLE, world_memory=False)
    memoryless = rewards(Reference.SCRIPTED, memoryless=True, world_memory=False)
    assert max(rewards(Reference.RANDOM, world_memory=False)) < 0.5
    assert 0.7 < scripted[0] == memoryless[0] < 0.88
    assert max(memoryless) < 0.88
    assert scripted[1:] == pytest.approx(oracle[1:], abs=0.005)
    assert min(oracle) > 0.96


@pytest.mark.slow
def test_what_the_world_carries_over_lifts_later_tasks_without_any_note():
    with_memory = rewards(Reference.SCRIPTED, memoryless=True, num_packs=15)
    without = rewards(Reference.SCRIPTED, memoryless=True, num_packs=15, world_memory=False)
    assert with_memory[0] == without[0]
    assert min(with_memory[2:]) > max(without) + 0.03


@pytest.mark.slow
def test_with_noise_notes_still_pay_and_every_reference_can_play():
    parameters = {"process_noise": 0.1, "horizon_min": 8, "horizon_max": 16, "num_packs": 40}
    first, *later = rewards(Reference.SCRIPTED, **parameters)
    assert min(later) > first + 0.05
    assert min(rewards(Reference.SCRIPTED, memoryless=True, **parameters)) > 0.4


def test_in_compact_play_the_sign_the_size_and_the_decay_all_matter():
    used = set()
    env = OptimalControl(**COMPACT)
    for index in range(60):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=2)
        used |= {
            life.messages[2].content
            for life in live(env, pack, beside(env, Players).reference(Reference.ORACLE, pack), "compact")
        }
    assert used == {f"<answer>{law}</answer>" for law in LAWS}


def test_after_a_change_the_scripted_note_follows_within_a_task():
    env = OptimalControl(world_memory=False)
    for index in range(20):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
        changed = beside(env, HiddenRules).changed(pack, at=2, seed=0)
        assert changed.tasks[2].spec.x == pack.tasks[2].spec.x
        lived = live(env, changed, beside(env, Players).reference(Reference.SCRIPTED, changed), "natural")
        noted = env.wording.noted(lived[2].note)
        assert noted.a == pytest.approx(changed.tasks[2].spec.a, abs=3 * noted.a_error)
        assert noted.b == pytest.approx(changed.tasks[2].spec.b, abs=3 * noted.b_error)
        assert lived[3].reward > 0.8


def test_a_note_is_a_sentence_with_both_numbers():
    env = OptimalControl()
    pack = env.sample_pack(split=Split.TRAIN, index=5, num_tasks=1)
    note = live(env, pack, beside(env, Players).reference(Reference.SCRIPTED, pack), "natural")[0].note
    spec = pack.tasks[0].spec
    assert f"a = {spec.a:.3f} (+- 0.000" in note
    assert f"b = {spec.b:.3f} (+- 0.00" in note
