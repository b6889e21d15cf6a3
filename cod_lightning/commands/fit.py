"""fit, validate, test, predict: mistakes in what is typed are answered before the libraries are imported, which takes seconds."""

from collections.abc import Sequence

from cod_lightning.commands import LEARNT_NOTHING
from cod_lightning.commands.config_files import expand
from cod_lightning.errors import ConfigError


def run(argv: Sequence[str]) -> int:
    """Parse, build, run; 3 after a `fit` without any gradient."""
    if argv[:1] in (["validate"], ["predict"]) and (typed := [arg for arg in argv if arg.startswith("--suites")]):
        expected = f"left out of {argv[0]}, which plays packs of data and no suites"
        raise ConfigError("command line", typed[0], expected, "`test` plays suites.")
    expanded = expand(argv)
    from cod_lightning.commands.lightning_cli import start
    from cod_lightning.commands.train import TrainCLI
    from cod_lightning.datamodules import RolloutDataModule
    from cod_lightning.modules import GRPOModule

    TrainCLI.run_name = expanded.names[0] if expanded.names else "run"
    cli = start(TrainCLI, GRPOModule, RolloutDataModule, expanded.argv)
    return LEARNT_NOTHING if cli.learnt_nothing else 0
