"""Whether a checkpoint, or a folder in a cache, is whole: complete, and every byte as it was written."""

import hashlib
import json
import os
import stat
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from cod_lightning.whole_file import sync

MANIFEST = "manifest.json"
METADATA, EXTRA, MARKER = ".metadata", "meta.pt", "complete.json"
"""Files of a sharded checkpoint: where each tensor lies (torch), whatever is no tensor (Lightning), digests of those (`seal`)."""


def damage(path: Path) -> str | None:
    """What is wrong with the checkpoint at `path`, or None. Reads all of it.

    A single file is a zip archive, in which torch keeps a CRC-32 of every record. A folder of shards is as `seal` left it.
    """
    if path.is_dir():
        return _damage_of_shards(path)
    if not path.is_file():
        return "it is missing"
    if not path.stat().st_size:
        return "it is empty"
    try:
        with zipfile.ZipFile(path) as archive:
            record = archive.testzip()
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a flipped bit makes zipfile and torch raise almost anything
        return f"it cannot be read ({type(error).__name__})"
    return None if record is None else f"{record} in it is not as it was written"


def digests(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files that are on disk for good, by their names."""
    found = {}
    for path in files:
        sync(path)
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def seal(folder: Path, shards: Mapping[str, str]) -> None:
    """Mark a sharded checkpoint complete, last of all; `shards` are the digests of what the ranks wrote."""
    others = [path for path in folder.iterdir() if path.name not in (*shards, MARKER)]
    marker = folder / MARKER
    marker.write_text(json.dumps({"sha256": {**shards, **digests(others)}}, indent=1) + "\n")
    sync(marker)
    sync(folder)


def write_manifest(folder: Path, identity: str) -> None:
    """Note the digests of all files in the folder, and what they are, for `manifest_damage`."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found[path.relative_to(folder).as_posix()] = digests([path])[path.name]
    (folder / MANIFEST).write_text(json.dumps({"identity": identity, "sha256": found}, indent=1) + "\n")
    sync(folder / MANIFEST)
    sync(folder)


def manifest_damage(folder: Path, identity: str) -> str | None:
    """What keeps a folder from being what this user wrote there as `identity`, or None. Reads all of it; follows no link."""
    try:
        for path in (folder, *folder.rglob("*")):
            facts = path.lstat()
            if not (stat.S_ISDIR(facts.st_mode) or stat.S_ISREG(facts.st_mode)):
                return f"{path.name} in it is a link, or no file"
            if facts.st_uid != os.geteuid():
                return f"{path.name} in it belongs to another user"
        noted = json.loads((folder / MANIFEST).read_text())
        if noted["identity"] != identity:
            return "it was made for something else"
        there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {MANIFEST}
        if differing := sorted(there ^ noted["sha256"].keys()):
            return f"{differing[0]} in it is missing, or was added"
        changed = [
            name for name, digest in noted["sha256"].items() if digests([folder / name])[Path(name).name] != digest
        ]
        return f"{changed[0]} in it is not as it was written" if changed else None
    except (ValueError, LookupError, TypeError, AttributeError, OSError, RecursionError) as error:
        return f"its {MANIFEST} cannot be read ({type(error).__name__})"


def _damage_of_shards(folder: Path) -> str | None:
    for name in (METADATA, EXTRA, MARKER):
        if not (folder / name).is_file():
            return f"it is incomplete: {name} is missing"
    try:
        expected: dict[str, str] = json.loads((folder / MARKER).read_text())["sha256"]
        missing = [name for name in expected if not (folder / name).is_file()]
        changed = [name for name in expected if not missing and digests([folder / name])[name] != expected[name]]
    except (ValueError, LookupError, TypeError, AttributeError, OSError, RecursionError) as error:
        return f"{MARKER} in it cannot be read ({type(error).__name__})"
    if missing:
        return f"it is incomplete: {missing[0]} is missing"
    return f"{changed[0]} in it is not as it was written" if changed else None
