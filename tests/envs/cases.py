"""All worlds that the tests of every world go through.

Every world has `tests/envs/<folder>/cases.py` with a dict `CASES`; a new world is tested as soon as it has that file.
Its first case in each protocol is in the default tier, the others are slow.
"""

import importlib
from pathlib import Path

import pytest

from tests.envs.case import Case as Case

FOLDERS = sorted(path.parent.name for path in Path(__file__).parent.glob("*/cases.py"))
WORLDS: dict[str, Case] = {}
_MARKED = []
for folder in FOLDERS:
    cases: dict[str, Case] = importlib.import_module(f"tests.envs.{folder}.cases").CASES
    protocols = [case.protocol for case in cases.values()]
    for place, name in enumerate(cases):
        is_first = protocols.index(protocols[place]) == place
        _MARKED.append(pytest.param(name, marks=() if is_first else pytest.mark.slow))
    WORLDS.update(cases)
every_world = pytest.mark.parametrize("name", _MARKED)
every_compact = pytest.mark.parametrize("name", [one for one in _MARKED if WORLDS[one.values[0]].protocol == "compact"])
