"""Numbers within a range: what each type takes, what comes of it, and what the answer to any other value names."""

import math

import pytest
from jsonargparse import ArgumentError, ArgumentParser

from cod_lightning import ranges
from tests.cases import each

TAKEN = {
    "Count": [1, 2.0, "3"],
    "Natural": [0, "7"],
    "Several": [2],
    "Positive": [1e-9, 1, "1e3"],
    "NonNegative": [0, 0.5],
    "NotPositive": [0, -3.5],
    "Share": [0, 0.5, 1],
    "PositiveShare": [0.1, 1],
    "InnerShare": [0.5],
}
REFUSED = {
    "Count": [0, 2.5, True, "x"],
    "Natural": [-1, math.nan],
    "Several": [1, math.inf],
    "Positive": [0, -1, math.nan, math.inf],
    "NonNegative": [-0.1, math.nan, math.inf],
    "NotPositive": [0.1, math.nan, -math.inf],
    "Share": [-0.1, 1.1, math.nan, True],
    "PositiveShare": [0, 1.1],
    "InnerShare": [0, 1, math.nan],
}


def parsed(name, value):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--it", type=getattr(ranges, name))
    return parser.parse_object({"it": value}).it


@each(("name", "value"), [(name, value) for name, values in TAKEN.items() for value in values])
def test_what_is_within_becomes_a_plain_number(name, value):
    found = parsed(name, value)
    assert type(found) is getattr(ranges, name).__base__
    assert found == float(value)


@each(("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values])
def test_what_is_not_within_is_refused_by_key(name, value):
    with pytest.raises(ArgumentError, match=rf'"it":\s+Not of type {name}'):
        parsed(name, value)
