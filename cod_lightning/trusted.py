"""Which classes a config of foreign origin may name: naming one is enough for Python to run its module."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from jsonargparse import set_parsing_settings
from jsonargparse._common import parsing_settings

OWN = ("cod_lightning", "datamodules", "modules", "callbacks")
STRATEGIES = ("lightning.pytorch.strategies", "torch.distributed.fsdp")
"""What the shipped configs name beside our own packages."""


@contextmanager
def only_from(packages: Sequence[str], *, trust: bool) -> Iterator[None]:
    """Let jsonargparse import nothing else that a value names, unless the command trusts the config."""
    before = dict(parsing_settings)  # there is no public way back
    if not trust:
        set_parsing_settings(import_path_denylist=["*"], import_path_allowlist=list(packages))
    try:
        yield
    finally:
        parsing_settings.update(before)
