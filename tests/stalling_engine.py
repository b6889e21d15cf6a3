"""An engine in this process that hangs once, if it knows a file in which to note it, and an environment that hangs."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.levers import Levers
from cod_lightning.types import Pack, Split


class StallingEngine(TransformersEngine):
    """Hangs in the decoding of a training rollout under policy version 2, unless the file named by STALLED_NOTE is there."""

    def bind(self, *given: Any, **named: Any) -> None:
        super().bind(*given, **named)
        decoder = self._bound()
        decoder._advance = partial(self._advance, decoder._advance)

    def _advance(self, advance: Callable[[Any, Any], None], in_flight: Any, joining: Any) -> None:
        note = Path(os.environ["STALLED_NOTE"])
        if (
            self.policy_version == 2
            and any("/train/" in turn.request.dialogue for turn in joining)
            and not note.exists()
        ):
            note.touch()
            decoding_hangs()
        advance(in_flight, joining)


def decoding_hangs() -> None:
    """As a device does that no longer answers."""
    time.sleep(3600)


class HangingLevers(Levers):
    """Levers that hang in one place.

    Args:
        hangs: While it is built (`load`), or while it samples a pack of that split (`train`, `validation`), the first one aside.
    """

    def __init__(self, hangs: str, protocol: Literal["natural", "compact"] = "compact") -> None:
        super().__init__(protocol=protocol)
        self.hangs, self._num = hangs, 0
        if hangs == "load":
            decoding_hangs()

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        if split.value == self.hangs and index == 3:
            decoding_hangs()
        return super().sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed)
