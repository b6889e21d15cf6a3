"""fit, validate, test: mistakes in what is typed are answered before the libraries are imported, which takes seconds."""

from collections.abc import Sequence

from cod_lightning.commands import LEARNT_NOTHING
from cod_lightning.commands.config_files import expand


def run(argv: Sequence[str]) -> int:
    """Parse, build, run; 3 after a `fit` without any gradient."""
    expanded = expand(argv)
    from cod_lightning.commands.train import TrainCLI, made

    return LEARNT_NOTHING if made(TrainCLI, expanded, execute=True).learnt_nothing else 0
