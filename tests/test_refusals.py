"""Values that cannot work, and numbers out of range, are refused by the class that they are given to, before anything is played."""

import math
import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from jsonargparse import ArgumentError, ArgumentParser

from cod_lightning import ranges
from cod_lightning.errors import ConfigError
from tests.cases import each

TABLE = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text())


def made(path, init_args):
    """The object, or what a function answers; of what is given to it, an object too where that has a `class_path`."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)(**{key: _given(value) for key, value in init_args.items()})


def _given(value):
    if isinstance(value, list):
        return [_given(one) for one in value]
    if isinstance(value, dict) and "class_path" in value:
        return made(value["class_path"], value.get("init_args", {}))
    return {name: _given(one) for name, one in value.items()} if isinstance(value, dict) else value


@each(("path", "init_args", "said"), [(path, *row) for path, rows in TABLE.items() for row in rows])
def test_a_value_that_cannot_work_is_refused_with_its_key_its_value_and_a_remedy(path, init_args, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        made(path, init_args)
    assert re.fullmatch(r"[\w.]+ is .*; expected .+\. .+", str(refused.value), re.DOTALL)
    assert refused.value.remedy.strip()
    assert "hunter2" not in str(refused.value)


TAKEN = {
    "Count": [1, 2.0, "3"],
    "Natural": [0, "7"],
    "Several": [2],
    "Seed": [0, 2**32 - 1],
    "Positive": [1e-9, 1, "1e3"],
    "AtLeastOne": [1, 1.5],
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
    "Seed": [-1, 2**32, True],
    "Positive": [0, -1, math.nan, math.inf],
    "AtLeastOne": [0.9, math.nan, math.inf],
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
