"""The library of terms, the families of reactions, the reading of equations and of actions."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.pde.actions import command_of
from cod_lightning.envs.pde.library import (
    FAMILIES,
    TERMS,
    columns,
    eligible,
    equation_of,
    loss,
    parse_equation,
    slopes,
    support,
    template_of,
    written,
)
from tests.cases import each

EQUATIONS = st.dictionaries(st.sampled_from(TERMS), st.floats(-9, 9).filter(lambda c: abs(c) > 0.01), min_size=1).map(
    equation_of
)


def _supports(family: str) -> set[frozenset[str]]:
    return {frozenset(term for term, _ in template) for template in FAMILIES[family]}


def test_there_are_fifteen_terms_and_their_slopes_are_derivatives():
    assert len(TERMS) == 15
    u, h = np.linspace(-0.5, 2.5, 31), 1e-6
    numeric = (columns(TERMS, u + h) - columns(TERMS, u - h)) / (2 * h)
    np.testing.assert_allclose(slopes(TERMS, u), numeric, rtol=1e-5, atol=1e-6)


def test_families_have_the_stated_sizes_and_order():
    sizes = {name: [len(template) for template in family] for name, family in FAMILIES.items()}
    train, benchmark = sizes.values()
    assert (len(train), train.count(1), train.count(2)) == (40, 5, 35)
    assert benchmark == [2] * 17 + [3] * 8
    assert FAMILIES["physical_full_eval_4000"][12] == template_of("S1-E")
    assert len(eligible("physical_full_train", 2, 3)) == 35


def test_evaluation_shows_no_set_of_terms_that_training_shows_but_no_new_term():
    train, benchmark = _supports("physical_full_train"), _supports("physical_full_eval_4000")
    assert not benchmark & train
    assert set().union(*benchmark) <= set().union(*train)


@given(EQUATIONS)
def test_an_equation_that_is_shown_is_read_back(equation):
    assert parse_equation(written(equation)) == (equation, "")


@each(
    ("text", "expected"),
    [
        ("u", {"u": 1.0}),
        ("f(u)= - u ** 2 + 2.0 * u/(1+u**2)", {"u**2": -1.0, "u/(1+u**2)": 2.0}),
        ("1*u + 2*u", {"u": 3.0}),
        ("0.5*exp(u)-1 - 1*u", {"exp(u)-1": 0.5, "u": -1.0}),
        ("1*u + -0.5*sin(2*u)", {"u": 1.0, "sin(2*u)": -0.5}),
    ],
)
def test_sums_of_number_times_term_are_read(text, expected):
    assert parse_equation(text) == (equation_of(expected), "")


@each("text", ["", "0*u", "c1*u", "u*2", "2u", "u u", "u**6", "u+", "1e3*u", "__import__('os')", "u;u", "9" * 500])
def test_anything_else_is_no_equation(text):
    assert parse_equation(text)[0] == ()
    assert parse_equation(text)[1]


@given(EQUATIONS, EQUATIONS)
def test_the_loss_is_zero_exactly_for_the_truth(equation, truth):
    assert (loss(equation, truth) == 0) == (equation == truth)
    assert loss(equation, truth) >= max(0, len(support(equation)) - len(support(truth)))


@given(st.text())
def test_no_text_breaks_the_reader_of_actions(text):
    for answer in (text, f"<sample_pde_data>{text}</sample_pde_data>"):
        command, complaint = command_of(answer)
        assert (command is None) == bool(complaint)


@each(
    "answer",
    [
        '<!DOCTYPE a [<!ENTITY x "y">]><summarize_pack_evidence/>',
        "<run_sparse_regression><dictionary>&x;</dictionary></run_sparse_regression>",
        "<run_sparse_regression><dictionary><b>u</b></dictionary></run_sparse_regression>",
        "<run_sparse_regression><alpha>1</alpha></run_sparse_regression>",
        "<run_sparse_regression><dictionary>u</dictionary><dictionary>u</dictionary></run_sparse_regression>",
        "<sample_pde_data><point>0.5 0.1</point></sample_pde_data>",
        "<sample_pde_data>0.5</sample_pde_data>",
        "<sample_pde_data>",
        "<summarize_pack_evidence/><summarize_pack_evidence/>",
        "<eval/>",
        "summarize_pack_evidence",
    ],
)
def test_bad_markup_is_refused(answer):
    assert command_of(answer)[0] is None


def test_points_may_stand_in_a_grid():
    answer = "<sample_pde_data> <point_grid><point x='0.5' t='0'/> <point x=\"0.1\" t=\"1\"></point></point_grid></sample_pde_data>"
    command, complaint = command_of(answer)
    assert command is not None
    assert (command.points, complaint) == ((("0.5", "0"), ("0.1", "1")), "")
