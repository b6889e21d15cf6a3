"""All worlds that the tests of every world go through.

Every world has `tests/envs/<folder>/cases.py` with a dict `CASES`; a new world is tested as soon as it has that file.
Its first case in each protocol is in the default tier, the others are slow.
"""

import importlib
from pathlib import Path

from tests.cases import each
from tests.envs.case import Case as Case

FOLDERS = sorted(path.parent.name for path in Path(__file__).parent.glob("*/cases.py"))
WORLDS: dict[str, Case] = {}
_FIRST = set()
for folder in FOLDERS:
    cases: dict[str, Case] = importlib.import_module(f"tests.envs.{folder}.cases").CASES
    protocols = [case.protocol for case in cases.values()]
    _FIRST |= {name for place, name in enumerate(cases) if protocols.index(protocols[place]) == place}
    WORLDS.update(cases)
_COMPACT = [name for name, case in WORLDS.items() if case.protocol == "compact"]
every_world = each("name", [n for n in WORLDS if n in _FIRST], slow=[n for n in WORLDS if n not in _FIRST])
every_compact = each("name", [n for n in _COMPACT if n in _FIRST], slow=[n for n in _COMPACT if n not in _FIRST])
