"""What the tests that concern every world know of each: how to make it, in which protocol, and answers that it understands.

Every world has `tests/envs/<folder>/cases.py` with a dict `CASES`; a new world is tested as soon as it has that file.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hypothesis.strategies import SearchStrategy

from cod_lightning.envs.base import TextEnv


@dataclass(frozen=True)
class Case:
    """One configuration of a world."""

    make: Callable[[], TextEnv]
    answers: SearchStrategy[str]
    """Well-formed responses, most of which go on with the task; some wild."""
    protocol: Literal["natural", "compact"] = "natural"


FOLDERS = sorted(path.parent.name for path in Path(__file__).parent.glob("*/cases.py"))
WORLDS: dict[str, Case] = {}
for folder in FOLDERS:
    WORLDS.update(importlib.import_module(f"tests.envs.{folder}.cases").CASES)
