"""Values that cannot work are refused by the class that they are given to, before anything is played."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from cod_lightning.errors import ConfigError
from tests.cases import each

TABLE = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text())


def made(path, init_args):
    """The object; of what is given to it, an object too where that has a `class_path`."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)(**{key: _given(value) for key, value in init_args.items()})


def _given(value):
    if isinstance(value, list):
        return [_given(one) for one in value]
    return (
        made(value["class_path"], value.get("init_args", {}))
        if isinstance(value, dict) and "class_path" in value
        else value
    )


@each(("path", "init_args", "said"), [(path, *row) for path, rows in TABLE.items() for row in rows])
def test_a_value_that_cannot_work_is_refused_with_its_key_its_value_and_a_remedy(path, init_args, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        made(path, init_args)
    assert re.fullmatch(r"[\w.]+ is .*; expected .+\. .+", str(refused.value), re.DOTALL)
    assert refused.value.remedy.strip()
    assert "hunter2" not in str(refused.value)
