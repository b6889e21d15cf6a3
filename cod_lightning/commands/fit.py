"""fit, validate, test: mistakes in what is typed are answered before the libraries are imported, which takes seconds."""

from collections.abc import Sequence
from typing import Any

from cod_lightning.commands import LEARNT_NOTHING
from cod_lightning.commands.config_files import expand


def run(argv: Sequence[str]) -> int:
    """Parse, build, run; 3 after a `fit` without any gradient."""
    command, *words = argv
    expanded = expand(words)
    from cod_lightning.commands.train import made

    text = "Checkpoint; last: the run's newest; in `fit` auto: the newest, if there is one."
    options: dict[str, Any] = {"ckpt_path": (str | None, None, text)}
    return LEARNT_NOTHING if made(expanded, command, options).learnt_nothing else 0
