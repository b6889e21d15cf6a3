"""All worlds that the tests of every world go through.

Every world has `tests/envs/<folder>/cases.py` with a dict `CASES`; a new world is tested as soon as it has that file.
"""

import importlib
from pathlib import Path

from tests.envs.case import Case as Case

FOLDERS = sorted(path.parent.name for path in Path(__file__).parent.glob("*/cases.py"))
WORLDS: dict[str, Case] = {}
for folder in FOLDERS:
    WORLDS.update(importlib.import_module(f"tests.envs.{folder}.cases").CASES)
