"""An engine in this process that hangs once, if it knows a file in which to note it."""

import os
import time
from pathlib import Path
from typing import Any

from cod_lightning.engines.transformers import TransformersEngine


class StallingEngine(TransformersEngine):
    """Hangs in the decoding of a training rollout under policy version 2, unless the file named by STALLED_NOTE is there."""

    def _advance(self, in_flight: Any, joining: Any) -> None:
        note = Path(os.environ["STALLED_NOTE"])
        if (
            self.policy_version == 2
            and any("/train/" in turn.request.dialogue for turn in joining)
            and not note.exists()
        ):
            note.touch()
            decoding_hangs()
        super()._advance(in_flight, joining)


def decoding_hangs() -> None:
    """As a device does that no longer answers."""
    time.sleep(3600)
