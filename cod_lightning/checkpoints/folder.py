"""The checkpoints of a run, `update-00000012.ckpt` and those before, with `last.ckpt` as a link to the newest, and the one that
a command means."""

import os
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cod_lightning.checkpoints.checkpoint import UNFINISHED, Checkpoint, damage, read_checkpoint
from cod_lightning.errors import DataError
from cod_lightning.files import sync

LAST = "last.ckpt"
NEWEST, AUTO = "last", "auto"
"""Values of `--ckpt_path`: go on from the newest; or, in `fit`, begin where there is none."""
_NAME = re.compile(r"update-(\d+)\.ckpt")


@dataclass(frozen=True)
class CheckpointFolder:
    """A checkpoint is a file, or a folder of shards; it gets its name when it is on disk as a whole."""

    path: Path

    @property
    def last(self) -> Path:
        """The link to the newest."""
        return self.path / LAST

    def has(self, checkpoint: str | Path) -> bool:
        """Whether the checkpoint lies here."""
        return Path(checkpoint).resolve().parent == self.path.resolve()

    def named(self, num_updates: int) -> Path:
        """The checkpoint of so many optimizer updates."""
        return self.path / f"update-{num_updates:08}.ckpt"

    def unfinished(self, num_updates: int) -> Path:
        """Where that checkpoint is written."""
        return self.path / f"{self.named(num_updates).name}{UNFINISHED}"

    def kept(self) -> list[Path]:
        """Those that have their name, newest first."""
        named = (path for path in self.path.glob("update-*") if _NAME.fullmatch(path.name))
        return sorted(named, key=num_updates_of, reverse=True)

    def newest_first(self) -> list[Path]:
        """`last.ckpt`, then those before it; every one that is kept where there is no `last.ckpt`."""
        if not self.last.is_symlink():
            return [self.last, *self.kept()] if self.last.exists() else self.kept()
        linked = Path(os.readlink(self.last)).name
        if not _NAME.fullmatch(linked):
            return [self.last, *self.kept()]
        return [self.last, *(path for path in self.kept() if num_updates_of(path) < num_updates_of(Path(linked)))]

    def usable(self) -> tuple[Path | None, list[tuple[Path, str]]]:
        """The newest checkpoint that is whole, if any, and what is wrong with those that are newer."""
        damaged: list[tuple[Path, str]] = []
        for path in self.newest_first():
            if (reason := damage(path)) is None:
                return path, damaged
            damaged.append((path, reason))
        return None, damaged

    def finish(self, num_updates: int) -> Path:
        """Give the unfinished checkpoint its name, and `last.ckpt` to it, which names a whole one at every moment.

        But for one: a folder of shards cannot replace, or be replaced, in one step; a reader in between gets the one before.
        """
        path, written = self.named(num_updates), self.unfinished(num_updates)
        if path.is_dir() or (written.is_dir() and path.exists()):
            path.rename(self.path / f"replaced-{path.name}{UNFINISHED}")
        written.replace(path)
        sync(self.path)
        self._link(path)
        self.clear()
        return path

    def _link(self, to: Path) -> None:
        """Let `last.ckpt` mean that checkpoint, in one step."""
        link = self.path / f"{LAST}{UNFINISHED}"
        link.unlink(missing_ok=True)
        link.symlink_to(to.name)
        if self.last.is_dir() and not self.last.is_symlink():  # a copy that followed the link
            shutil.rmtree(self.last)
        link.replace(self.last)
        sync(self.path)

    def clear(self) -> None:
        """Remove what was left unfinished, or has been replaced."""
        self.path.mkdir(parents=True, exist_ok=True)
        remove(self.path.glob(f"*{UNFINISHED}"))


def num_updates_of(path: Path) -> int:
    """Optimizer updates behind a checkpoint, by its name."""
    found = _NAME.fullmatch(path.name)
    assert found is not None, f"{path} is not the name of a checkpoint"
    return int(found[1])


def remove(paths: Iterable[Path]) -> None:
    """Files and folders, gone or not."""
    for path in list(paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


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
