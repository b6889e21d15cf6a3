"""The examples in docstrings hold."""

import doctest
from importlib import import_module
from pathlib import Path

from tests.cases import each

ROOT = Path(__file__).parents[1]
FILES = [path for path in (ROOT / "cod_lightning").rglob("*.py") if "    >>> " in path.read_text()]


@each("name", sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in FILES))
def test_the_examples_of_a_module_hold(name):
    assert doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS).failed == 0
