"""Scores against their definitions, and what a row may not hold."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.dataset import CodeTests, ExactMatch, NumericMatch, RegexMatch, Unscored, scorers
from cod_lightning.envs.dataset.scorers import number_in
from tests.cases import each


def score(scorer, answer, value):
    return scorer.grade(answer, scorer.key_of(value)).score


def test_exact_match_forgives_spaces_and_capitals_and_unscored_answers_are_worth_nothing():
    assert [score(ExactMatch(), a, "New  York") for a in (" new york ", "newyork", "")] == [1, 0, 0]
    assert score(ExactMatch(), "3", 3) == 1
    assert Unscored().grade("x", "y")[:3] == (0.0, "", False)
    assert Unscored().right_answer("y") == "y"


@given(right=st.floats(-1e12, 1e12), error=st.floats(-3e-6, 3e-6))
def test_a_number_counts_within_the_tolerance_and_not_beyond(right, error):
    given_ = right * (1 + error) if right else error
    distance = abs(Fraction(given_) - Fraction(right)) / (abs(Fraction(right)) or 1)
    close = abs(distance - Fraction(1e-6)) < Fraction(1e-12)
    assert close or score(NumericMatch(), repr(given_), right) == float(distance <= Fraction(1e-6))


@given(st.text(max_size=50) | st.text("-+$0123456789,./eE", max_size=13))
def test_any_text_is_a_number_or_none(text):
    number = number_in(text)
    assert number is None or NumericMatch().grade(text, text).score == 1.0  # exact, where a float would overflow
    if NumericMatch().grade(text, "1").malformed:
        assert number is None


@each(
    ("text", "number"),
    [("1e3", 1000), ("$1,250.50", Fraction(2501, 2)), ("-3/4", Fraction(-3, 4)), ("12.", 12), (".5", Fraction(1, 2))]
    + [(text, None) for text in ("3,5", "1,2,3", "12,50", ",5", "1,0000")]
    + [(text, None) for text in ("", "1/0", "nan", "inf", "1_000", "٣", "two", "1 2", "9" * 500, "1e9999")],
)
def test_numbers_are_read_in_their_usual_spellings(text, number):
    assert number_in(text) == number


def test_a_regular_expression_matches_from_end_to_end_and_one_without_end_fails_within_seconds(monkeypatch):
    assert [score(RegexMatch(), a, r"(?i)no(pe)?") for a in ("NOPE", "no", "nopes")] == [1, 1, 0]
    key = RegexMatch().key_of(r"(a|aa)+$b")
    monkeypatch.setattr(scorers, "_PATTERN_S", 0.05)
    with pytest.raises(TimeoutError):
        RegexMatch().grade("a" * 100, key)


@pytest.mark.slow
@each(
    ("scorer", "value", "complaint"),
    [
        (ExactMatch, ["a"], "a list, not a text"),
        (ExactMatch, True, "a bool"),
        (ExactMatch, float("inf"), "not a finite number"),
        (ExactMatch, "<answer>3</answer>", "no response can hold this answer"),
        (ExactMatch, "y" * 20_001, "20,001 letters"),
        (ExactMatch, "  ", "is empty"),
        (NumericMatch, "many", "'many', not a number"),
        (NumericMatch, float("nan"), "not a number"),
        (RegexMatch, "(", "no regular expression"),
        (RegexMatch, "((a{1000}){1000}){1000}", "reading the regular expression"),
        (RegexMatch, "(" * 4 + "a" + "{99})" * 4, "reading the regular expression"),
        (CodeTests, "[", "Expecting value"),
        (CodeTests, [], "no list of 1 to 100 tests"),
        (CodeTests, [{"call": "f(", "output": 1}], "no Python expression"),
        (CodeTests, [{"assert": "f(1) == 2"}], "a test is neither"),
    ],
)
def test_a_value_that_cannot_be_graded_by_is_refused(scorer, value, complaint, monkeypatch):
    monkeypatch.setattr(scorers, "_PATTERN_S", 0.3)
    with pytest.raises(ValueError, match=complaint):
        scorer().key_of(value)


LAZY = "(?:" * 90 + "a?" + ")+?" * 90


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [LAZY, *(pytest.param(one, marks=pytest.mark.slow) for one in (LAZY * 110, "(?:" * 30 + "a?" + ")+?" * 30))],
)
def test_a_pattern_that_would_hang_the_reading_of_a_row_is_refused_in_seconds(pattern):
    RegexMatch().key_of("(" * 9 + "a" + ")" * 9)  # the process that reads is there
    begun = time.perf_counter()
    with pytest.raises(ValueError, match="reading the regular expression"):
        RegexMatch().key_of(pattern)
    assert time.perf_counter() - begun < 20


@pytest.mark.slow
def test_a_long_pattern_is_read_and_a_long_one_that_is_none_is_named():
    words = "|".join(f"(word{n})" for n in range(1000))
    assert RegexMatch().grade("word999", RegexMatch().key_of(words)).score == 1
    with pytest.raises(ValueError, match=r"is no regular expression \(missing \)"):
        RegexMatch().key_of(words + "(")
