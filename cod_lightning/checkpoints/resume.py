"""Which checkpoint a command works with: the one that is named, several of them, or the newest of the run that is whole."""

import sys
from pathlib import Path
from typing import Any

from cod_lightning.checkpoints.checkpoint import Checkpoint, read_checkpoint
from cod_lightning.checkpoints.folder import CheckpointFolder
from cod_lightning.checkpoints.integrity import damage
from cod_lightning.errors import ConfigError, DataError

LAST, AUTO = "last", "auto"
"""Values of `--ckpt_path`: go on from the newest; or, in `fit`, begin where there is none."""


def newest(folder: Path, *, needed: bool) -> Path | None:
    """The newest whole checkpoint in a run's `checkpoints/`; prints a warning if that is not the newest there is.

    Raises `ConfigError` where there is none (returns None if none is `needed`), `DataError` where all are damaged.
    """
    kept = CheckpointFolder(folder)
    path, damaged = kept.usable()
    listed = "; ".join(f"{bad} is damaged: {reason}" for bad, reason in damaged)
    if path is None and damaged:
        raise DataError(f"{listed}. No checkpoint in {folder} is whole; begin anew with --overwrite true.")
    if path is None and needed:
        read_checkpoint(kept.last)
    if path is not None and damaged:
        print(f"warning: {listed}. Going on from the one before, {path}", file=sys.stderr)
    return path


def named(path: str | Path) -> Checkpoint:
    """The checkpoint at `path`, read as a whole. Raises `DataError` with the remedy if it is damaged."""
    checkpoint = read_checkpoint(path)
    if (reason := damage(Path(path))) is None:
        return checkpoint
    others = CheckpointFolder(Path(path).parent).kept()
    whole = next((other for other in others if not other.samefile(path) and damage(other) is None), None)
    remedy = f"Use {whole}." if whole else "Use another."
    raise DataError(f"ckpt_path is {path}, which is damaged: {reason}. {remedy}")


def checkpoints_of(config: Any) -> list[str]:
    """The checkpoints that `--ckpt_paths` names; none where it is not set."""
    paths: list[str] = list(config.get("ckpt_paths") or ())
    if paths and config.get("ckpt_path"):
        raise ConfigError("ckpt_paths", paths, "null beside a ckpt_path", "Put all checkpoints into ckpt_paths.")
    if len(set(paths)) != len(paths) or "last" in paths:
        expected = "different files, each named in full"
        raise ConfigError("ckpt_paths", paths, expected, "Name each once, `last` by its path.")
    for path in paths:
        named(path)
    return paths
