"""A command that a method brings: the run of a config, as it asks for it, is handed to the method's own `run`."""

from collections.abc import Sequence
from importlib import import_module

from cod_lightning.commands import OF_METHODS
from cod_lightning.commands.deploy import setting_of
from cod_lightning.commands.train import SAMPLED, built, model_of
from cod_lightning.datamodules.checks import drawn_pack
from cod_lightning.types import Pack, Split


def run(argv: Sequence[str]) -> int:
    """`argv` begins with the command's name."""
    command, *rest = argv
    method = import_module(OF_METHODS[command])
    cli = built(command, SAMPLED | method.OPTIONS, rest)
    data = cli.datamodule

    def draw(split: Split, index: int) -> Pack:
        return drawn_pack(data.env, data.pack_size, data.seed, index, split)

    return method.run(cli, lambda: setting_of(cli, model_of(cli, cli.config.ckpt_path)), draw)
