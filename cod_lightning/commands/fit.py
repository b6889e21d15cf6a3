"""fit, validate, test, predict: mistakes in what is typed are answered before the libraries are imported, which takes seconds."""

from collections.abc import Sequence

from cod_lightning.commands import LEARNT_NOTHING
from cod_lightning.commands.config_files import expand, keys_of
from cod_lightning.errors import ConfigError


def run(argv: Sequence[str]) -> int:
    """Parse, build, run; 3 after a `fit` without any gradient."""
    if argv[0] in ("validate", "predict") and "--suites" in dict(keys_of(argv)):
        expected = f"left out of {argv[0]}, which plays packs of data and no suites"
        raise ConfigError("command line", "--suites", expected, "`test` plays suites.")
    expanded = expand(argv)
    from cod_lightning.commands.train import TrainCLI, made

    return LEARNT_NOTHING if made(TrainCLI, expanded, execute=True).learnt_nothing else 0
