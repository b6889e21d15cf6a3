"""What ships as YAML: where it is, and by which names a command line takes it."""

import re
import sys
import sysconfig
from functools import cache
from importlib import import_module
from pathlib import Path

CLASS_KEYS = {
    "env": "data.env",
    "context": "data.context",
    "engine": "data.engine",
    "program": "data.program",
    "source": "data.source",
    "replay": "data.replay",
    "loss": "model.loss",
    "credit": "model.credit",
    "baseline": "model.baseline",
}
"""Short name of a key -> the key, whose value is a class; env and context are groups of files, too."""
_ROOMS = ("contexts", "engines", "lifecycles", "methods", "models", "objective", "rewards", "training")
"""Packages whose modules are imported when one of their classes is named."""


@cache
def classes() -> dict[str, set[str]]:
    """Module -> the names of its classes, in those packages; nothing is imported."""
    home = Path(__file__).resolve().parents[1]
    files = sorted(file for room in _ROOMS for file in (home / room).rglob("[a-z]*.py"))
    names = {file: set(re.findall(r"^class (\w+)", file.read_text(), re.MULTILINE)) for file in files}
    return {
        ".".join(("cod_lightning", *file.relative_to(home).with_suffix("").parts)): found
        for file, found in names.items()
        if found
    }


def import_named(text: str) -> None:
    """Import the modules whose classes the text names, since a parser finds names alone, as in `--model.loss NFT`, of what is
    imported; all of them where it asks for help, which lists the classes that are.
    """
    words = set(re.findall(r"(?<![\w.])[A-Z]\w+", text))
    listed = re.search(r"(?:^|\s)(?:-h|--\S*help)(?:\s|=|$)", text) is not None
    for module, names in classes().items():
        if listed or words & names:
            import_module(module)


def config_folder() -> Path:
    """Where the shipped configs are: a checkout's, else an installation's (an editable one may hold stale copies)."""
    checkout = Path(__file__).resolve().parents[2] / "configs"
    installed = [Path(p) / "share" / "cod-lightning" / "configs" for p in (sys.prefix, sysconfig.get_path("data"))]
    return next((folder for folder in (checkout, *installed) if folder.is_dir()), checkout)


def config_names() -> list[str]:
    """Names that `--config` takes: files at the top and under experiment/."""
    return sorted(f"{of}{path.stem}" for of in ("", "experiment/") for path in (config_folder() / of).glob("*.yaml"))


def groups() -> set[str]:
    """The config groups."""
    return {path.name for path in config_folder().iterdir() if path.is_dir()}


def files_of(group: str) -> dict[str, Path]:
    """The files of a config group, by the names that choose them, in their order."""
    return {path.stem: path for path in sorted((config_folder() / group).glob("*.yaml"))}
