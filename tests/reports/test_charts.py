"""Charts as they are laid out."""

import math

import pytest

from cod_lightning.reports.charts import Line, chart
from tests.cases import each


def _line(*y: float | None, **more) -> Line:
    return Line(label="a", x=list(range(len(y))), y=list(y), **more)


def test_a_missing_point_is_a_gap_and_a_line_without_numbers_is_not_drawn():
    made = chart("t", [_line(0.0, None, 1.0, 0.5), _line(None, None)])
    (drawn,) = made["lines"]
    assert drawn["path"].count("M") == 2
    assert drawn["last"] == "0.5"
    assert chart("t", [_line(None)])["lines"] == []


@each(
    "y",
    [
        (1e300, 1.0),
        (-1e308, 1e308),
        (1e-320, 2e-320),
        (5e-324, 0.0),
        (0.0, 0.0),
        (7.0, 7.0),
        (-3.0, -3.0),
        (9e14, -9e14),
    ],
)
def test_absurd_values_have_a_chart_all_the_same(y):
    made = chart("t", [_line(*y)])
    assert all(0 <= place <= made["high"] for _, place in made.get("rows", []))


def test_marks_of_lines_stand_side_by_side_with_their_intervals_and_what_is_beyond_the_bounds_is_within_the_axis():
    lines = [_line(0.5, 1.2, ci95=[(0.4, 0.6), None], n=[8, 8]) for _ in range(2)]
    made = chart("t", lines, "position", bounds=(0.0, 1.0), large=True)
    (one, gone), (other, _) = (line["marks"] for line in made["lines"])
    assert one["x"] < other["x"]
    assert one["said"] == "position 0: a 0.500 [0.40, 0.60], 8 packs"
    assert one["ends"][0] > one["y"] > one["ends"][1]
    assert gone["y"] >= 0
    assert math.isclose(float(made["x_scale"].split()[3]), 1)


@pytest.mark.parametrize("steps", [1, 2, 10_000])
def test_steps_are_whole_numbers(steps):
    made = chart("t", [_line(*[0.5] * steps)])
    assert all("." not in text for text, _ in made["columns"])
