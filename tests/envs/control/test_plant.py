"""The plant, the best plan, and what a run tells of the hidden numbers."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.control.draws import ControlParameters
from cod_lightning.envs.control.evidence import NAMES, run_formula
from cod_lightning.envs.control.fused import LAWS, formula_of, law_of
from cod_lightning.envs.control.plans import best_plan, careful_formula, planned_formula
from cod_lightning.envs.control.plant import ControlTask, PlantBelief, run
from cod_lightning.envs.expressions import MOST_LETTERS, compile_expression

RANGES = ControlParameters()
TASKS = st.builds(
    ControlTask,
    a=st.floats(0.55, 1.2),
    b=st.floats(0.35, 1.5) | st.floats(-1.5, -0.35),
    x=st.floats(-2, 2),
    v=st.floats(-1.5, 1.5),
    target_x=st.floats(-8, 8),
    horizon=st.integers(2, 30),
)


def drawn(seed: int) -> ControlTask:
    rng = random.Random(seed)
    a, b = RANGES.draw(rng)
    limits = (2.0, 1.5, 8.0)
    x, v, target = (round(rng.uniform(-most, most), 3) for most in limits)
    return ControlTask(a=a, b=b, x=x, v=v, target_x=target, horizon=12)


def reward_of(task: ControlTask, formula: str) -> float:
    return run_formula(task, compile_expression(formula, NAMES)).reward


@given(task=TASKS, u=st.floats(-3, 3))
def test_a_run_follows_the_stated_dynamics_and_loss(task, u):
    played = run(task, lambda t, x, v: u)
    cut = max(-1.0, min(1.0, u))
    assert played.us == (cut,) * task.horizon
    for t in range(task.horizon):
        assert played.vs[t + 1] == pytest.approx(task.a * played.vs[t] + task.b * cut, abs=1e-9)
        assert played.xs[t + 1] == pytest.approx(played.xs[t] + played.vs[t + 1], abs=1e-9)
    loss = (played.xs[-1] - task.target_x) ** 2 + 2 * played.vs[-1] ** 2 + 0.03 * task.horizon * cut**2
    assert played.loss == pytest.approx(loss)
    assert played.reward == pytest.approx(1 / (1 + loss))


@given(task=TASKS, seed=st.integers(0, 99))
def test_no_other_controls_beat_the_plan(task, seed):
    plan = np.array(best_plan(task))
    assert (np.abs(plan) <= 1 + 1e-9).all()
    least = run(task, lambda t, x, v: plan[t]).loss
    for scale in (0.001, 0.1, 1.0):
        other = np.clip(plan + np.random.default_rng(seed).normal(size=task.horizon) * scale, -1, 1)
        assert run(task, lambda t, x, v, u=other: u[t]).loss >= least - 1e-6


def test_the_optimum_and_simple_laws_are_worth_what_the_notes_on_the_reference_say():
    tasks = [drawn(seed) for seed in range(1500)]

    def mean(law) -> float:
        return sum(run(task, law(task)).reward for task in tasks) / len(tasks)

    known = mean(lambda task: lambda t, x, v: (0.3 * (task.target_x - x) - 0.7 * v) * (1 if task.b > 0 else -1))
    assert mean(lambda task: lambda t, x, v: best_plan(task)[t]) == pytest.approx(0.977, abs=0.01)
    assert known == pytest.approx(0.91, abs=0.02)
    assert mean(lambda task: lambda t, x, v: 0.0) == pytest.approx(0.12, abs=0.03)
    assert mean(lambda task: lambda t, x, v: 0.3 * (task.target_x - x) - 0.7 * v) == pytest.approx(0.45, abs=0.06)


@given(task=TASKS)
def test_a_plan_as_a_formula_is_worth_what_the_plan_is(task):
    formula = planned_formula(PlantBelief(task.a, task.b), task)
    assert len(formula) <= MOST_LETTERS
    best = run(task, lambda t, x, v: best_plan(task)[t]).reward
    assert reward_of(task, formula) == pytest.approx(best, abs=0.03)


def test_feedback_makes_a_plan_hold_where_the_numbers_are_a_little_off():
    tasks = [drawn(seed) for seed in range(150)]
    believed = [PlantBelief(task.a + 0.05, task.b * 1.1) for task in tasks]
    corrected = [reward_of(task, planned_formula(one, task)) for task, one in zip(tasks, believed, strict=True)]
    plans = [best_plan(replace(task, a=one.a, b=one.b)) for task, one in zip(tasks, believed, strict=True)]
    blind = [run(task, lambda t, x, v, p=plan: p[t]).reward for task, plan in zip(tasks, plans, strict=True)]
    assert np.mean(corrected) > 0.85 > 0.6 > np.mean(blind)


@pytest.mark.slow
def test_the_careful_law_serves_either_sign():
    tasks = [drawn(seed) for seed in range(300)]
    formulas = [careful_formula(task) for task in tasks]
    assert formulas == [careful_formula(replace(task, a=0.0, b=0.0)) for task in tasks], "it knows nothing hidden"
    assert np.mean([reward_of(*pair) for pair in zip(tasks, formulas, strict=True)]) > 0.72
    mirrored = [reward_of(replace(task, b=-task.b), formula) for task, formula in zip(tasks, formulas, strict=True)]
    assert np.mean(mirrored) > 0.72


def test_a_law_of_a_word_and_its_formula_are_one():
    task = drawn(3)
    for word in LAWS:
        assert reward_of(task, formula_of(word)) == pytest.approx(run(task, law_of(word, task.target_x)).reward)


@given(task=TASKS)
def test_one_run_tells_both_numbers_from_three_decimals(task):
    played = run(task, lambda t, x, v: 0.3 * (task.target_x - x) - 0.7 * v + (0.9 if t == 0 else 0))
    vs, us = ([round(value, 3) for value in values] for values in (played.vs, played.us))
    found = RANGES.learned(RANGES.prior, vs, us)
    assert abs(found.a - task.a) < 6 * found.a_error
    assert abs(found.b - task.b) < 6 * found.b_error


def test_more_runs_tell_more_and_a_contradiction_starts_anew():
    belief, errors = RANGES.prior, []
    for seed in range(4):
        task = replace(drawn(seed), a=0.8, b=-1.1, v=0.1)
        played = run(task, lambda t, x, v: 0.01 if t == 0 else 0.0)
        belief = RANGES.learned(belief, played.vs, played.us)
        errors.append(belief.b_error)
    assert errors == sorted(errors, reverse=True)
    assert belief.b == pytest.approx(-1.1, abs=0.01)
    played = run(replace(drawn(9), a=0.8, b=1.1), lambda t, x, v: 1.0 if t % 3 else -1.0)
    assert RANGES.learned(belief, played.vs, played.us).b == pytest.approx(1.1, abs=0.01)
