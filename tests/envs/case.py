"""One configuration of a world, for the tests that concern every world."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hypothesis.strategies import SearchStrategy

from cod_lightning.envs.base import TextEnv


@dataclass(frozen=True)
class Case:
    """How to make it, in which protocol, and answers that it understands."""

    make: Callable[[], TextEnv]
    answers: SearchStrategy[str]
    """Well-formed responses, most of which go on with the task; some wild."""
    protocol: Literal["natural", "compact"] = "natural"
