"""One strict rule for reading an answer."""

import re

from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.answers import answer_of, code_of
from tests.cases import each


@each(
    "answer",
    [
        "Direction 3",
        "direction 3",
        "Direction_3",
        " Direction 3\n",
        "Direction\t3 because",
        "Direction 3.5",
        "Direction 03",
    ],
)
def test_a_code_is_read_whatever_follows_the_integer(answer):
    assert code_of(f"I think so. <answer>{answer}</answer> Done.", "Direction", 4) == (3, "")


@each("answer", ["", "3", "Direction", "Direction3", "DIRECTION 3", "go Direction 3", "Lever 3"])
def test_anything_else_between_the_tags_is_a_format_error(answer):
    code, complaint = code_of(f"<answer>{answer}</answer>", "Direction", 4)
    assert (code, complaint) == (0, "the answer is not 'Direction' and a number")


@each("number", ["0", "5", "12", "33", "9" * 10_000])
def test_an_integer_outside_the_codes_has_a_complaint_of_its_own(number):
    code, complaint = code_of(f"<answer>Direction {number}</answer>", "Direction", 4)
    assert (code, complaint) == (0, "the number is not one of 1 to 4")


@each(
    ("response", "named"),
    [
        ("", "<answer> occurs 0 times"),
        ("Direction 3", "<answer> occurs 0 times"),
        ("<answer>Direction 3", "</answer> occurs 0 times"),
        ("<answer>Direction 3</answer><answer>Direction 3</answer>", "<answer> occurs 2 times"),
        ("I will use <answer>. <answer>Direction 3</answer>", "<answer> occurs 2 times"),
        ("<answer>Direction 3</answer></answer>", "</answer> occurs 2 times"),
        ("</answer>Direction 3<answer>", "</answer> comes before <answer>"),
        ("<Answer>Direction 3</Answer>", "<answer> occurs 0 times"),
    ],
)
def test_both_tags_occur_exactly_once_in_order_and_case_matters(response, named):
    assert named in answer_of(response)[1]


COMPLAINTS = (
    r"</?answer> occurs \d+ times; expected exactly once|</answer> comes before <answer>"
    r"|the answer is not 'Direction' and a number|the number is not one of 1 to 4"
)


@given(st.text(), st.booleans())
def test_a_complaint_never_repeats_what_the_policy_said(said, tagged):
    code, complaint = code_of(f"<answer>{said}</answer>" if tagged else said, "Direction", 4)
    assert bool(code) != bool(complaint)
    assert code or re.fullmatch(COMPLAINTS, complaint)
