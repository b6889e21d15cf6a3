"""The solver, the measurements, the limits, the regression."""

import itertools

import numpy as np
import pytest

from cod_lightning.envs.pde.evidence import believe
from cod_lightning.envs.pde.library import TERMS, columns, eligible, equation_of, reaction, support
from cod_lightning.envs.pde.numerics import LIMIT, highest_amplitude, measured, profile, residual, solution, stable
from cod_lightning.envs.pde.packs import MAGNITUDES
from cod_lightning.envs.pde.regression import Reading, regress, supports_of
from cod_lightning.envs.pde.verdicts import CANDIDATES, judged
from tests.cases import each

LOGISTIC = (("u", 1.5), ("u**3", -0.8))


def _readings(equation, states) -> list[Reading]:
    u = np.array(states)
    return [Reading(0.5, 0.0, a, b) for a, b in zip(u.tolist(), reaction(equation, u).tolist(), strict=True)]


def test_a_profile_is_not_negative_has_its_height_and_is_zero_at_the_ends():
    for weights in ((1.0,), (-0.7,), (0.3, -1.2), (-1.0, 0.1)):
        state = profile(weights, 1.7, 257)
        assert state.min() >= 0
        assert state.max() == pytest.approx(1.7)
        assert state[0] == state[-1] == 0


def test_the_residual_of_the_scheme_is_the_reaction_at_the_step_before():
    u = solution(LOGISTIC, (1.0, 0.5), 1.1, 65, 401, 1.0)
    assert u.shape == (401, 65)
    for n, i in itertools.product((0, 3, 200, 399), (1, 20, 63)):
        assert residual(u, 401, n, i) == pytest.approx(float(reaction(LOGISTIC, u[n, i])), abs=1e-8)


def test_the_solver_agrees_with_decay_that_is_known_exactly():
    rate = 1.2
    u = solution((("u", -rate),), (1.0,), 0.02, 257, 2001, 0.2)
    x = np.linspace(0, 1, 257)
    coefficients = [2 * np.mean(u[0] * np.sin(k * np.pi * x)) * 257 / 256 for k in range(1, 30)]
    exact = sum(
        c * np.sin(k * np.pi * x) * np.exp(-((k * np.pi) ** 2 + rate) * 0.2) for k, c in enumerate(coefficients, 1)
    )
    np.testing.assert_allclose(u[400], exact, rtol=0.02, atol=1e-7)


def test_a_measurement_lies_on_the_reaction_unless_it_was_cut():
    u = solution(LOGISTIC, (1.0,), 2.2, 257, 2001, 1.0)
    for x, t in ((0.31, 0.0513), (0.5, 0.1), (0.777, 0.3333), (0.5, 1.0)):
        state, rate = measured(u, 2001, x, t)
        assert rate == pytest.approx(float(reaction(LOGISTIC, np.array(state))), abs=2e-3)
    assert measured(u, 2001, 0.5, 0.0)[1] == -LIMIT


@each(("family", "most"), [("physical_full_train", 2), ("physical_full_eval_4000", 3)])
def test_the_highest_amplitude_separates_stable_from_unstable_corners(family, most):
    templates = eligible(family, 1, most)
    highest = highest_amplitude(templates, MAGNITUDES)
    assert 2 < highest < LIMIT
    assert stable((("u**3", 0.5), ("u**7", -2.0)), (1.0,), highest * 0.97)
    assert not stable((("exp(u)-1", 9.0),), (1.0,), 2.9)


def test_the_best_fit_without_noise_is_the_truth():
    readings = _readings(LOGISTIC, [0.1, 0.4, 0.7, 1.0, 1.3, 1.6])
    found = regress(readings, supports_of(TERMS, 2), 0.05)
    assert found.fits[0].equation == LOGISTIC
    assert [fit.error for fit in found.fits] == sorted(fit.error for fit in found.fits)
    assert len(found.used) == 6


def test_fits_are_least_squares_and_small_coefficients_are_dropped():
    rng = np.random.default_rng(0)
    readings = [Reading(0.5, 0.0, u, u + rng.normal()) for u in np.linspace(0.2, 2, 9).tolist()]
    (fit,) = regress(readings, [("u", "u**2")], 0.0).fits
    u, y = np.array([r.u for r in readings]), np.array([r.y for r in readings])
    expected = np.linalg.lstsq(columns(("u", "u**2"), u), y, rcond=None)[0]
    np.testing.assert_allclose([c for _, c in fit.equation], expected, atol=1e-3)
    exact = [Reading(0.5, 0.0, u, u + 0.01 * u**2) for u in (0.5, 1.0, 1.5)]
    assert support(regress(exact, [("u", "u**2")], 0.05).fits[0].equation) == ("u",)


def test_cut_points_are_left_out_and_given_equations_are_scored_as_they_are():
    readings = [*_readings(LOGISTIC, [0.3, 0.9]), Reading(0.5, 0.0, 2.5, -2.999)]
    found = regress(readings, [], 0.05, [LOGISTIC])
    assert (found.left_out, found.fits[0].equation) == (1, LOGISTIC)
    assert found.fits[0].error < 1e-12


def test_the_evidence_prefers_the_truth_and_few_terms():
    rng = np.random.default_rng(3)
    truth = equation_of({"tanh(u)": 1.2, "u**2": -0.9})
    pairs = [
        (r.u + 0.002 * rng.normal(), r.y + 0.0005 * rng.normal()) for r in _readings(truth, np.linspace(0.1, 1.9, 24))
    ]
    believed = believe(pairs, 1, 3)
    assert support(believed.equations[0]) == support(truth)
    assert believed.misfit < 3
    assert sum(believed.probabilities) <= 1 + 1e-9
    assert len(believed.equations) == 8
    assert all(believed.equations), "one without a term could not be proposed"


def test_the_true_equation_survives_its_own_readings_and_no_magnitude_leaves_the_bounds():
    rng = np.random.default_rng(5)
    refused = 0
    for word, template in CANDIDATES.items():
        for _ in range(20):
            truth = equation_of({term: sign * rng.uniform(0.5, 2) for term, sign in template})
            clean = _readings(truth, rng.uniform(0.1, 1.4, size=4))
            noisy = [r._replace(u=r.u + 0.004 * rng.normal(), y=r.y + 0.001 * rng.normal()) for r in clean]
            survives, equations = judged(noisy, tuple(CANDIDATES), (0.004, 0.001))
            refused += not survives[word]
            assert all(0.5 <= abs(c) <= 2 for equation in equations.values() for _, c in equation)
    assert refused <= 2
