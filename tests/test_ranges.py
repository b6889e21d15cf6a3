"""Numbers within a range: what each type takes, what comes of it, and what the answer to any other value names."""

import math
import re

import pytest
from jsonargparse import ArgumentError, ArgumentParser

from cod_lightning import ranges
from cod_lightning.credit.returns import CreditRule
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


@each(("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values if value != "x"])
def test_where_null_is_taken_too_the_range_is_said_whole(name, value):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--it", type=getattr(ranges, name) | None)
    said = getattr(ranges, name).__doc__.partition(", ")[2].removesuffix(".")
    with pytest.raises(ArgumentError, match=re.escape(said)):
        parser.parse_object({"it": value})


def test_a_number_of_a_chosen_class_is_refused_by_class_key_and_value():
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(CreditRule, "credit")
    chosen = {"class_path": "cod_lightning.credit.returns.EpisodeCredit", "init_args": {"discount": 1.5}}
    with pytest.raises(ArgumentError, match=r'(?s)"discount":\s+Not of type PositiveShare: .*in \(0, 1\], not 1\.5'):
        parser.parse_object({"credit": chosen})
