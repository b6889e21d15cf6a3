"""What ships as YAML: where it is, and by which names a command line takes it."""

import re
import sys
import sysconfig
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


def import_named(text: str) -> None:
    """Import the modules whose classes the text names, since a parser finds names alone, as in `--model.loss NFT`, of what is
    imported; all of them where it asks for help, which lists the classes that are.
    """
    words, home = set(re.findall(r"(?<![\w.])[A-Z]\w+", text)), Path(__file__).resolve().parents[1]
    listed = re.search(r"(?:^|\s)(?:-h|--\S*help)(?:\s|=|$)", text) is not None
    for file in sorted(file for room in _ROOMS for file in (home / room).rglob("[a-z]*.py")):
        classes = set(re.findall(r"^class (\w+)", file.read_text(), re.MULTILINE))
        if words & classes or (listed and classes):
            import_module(".".join(("cod_lightning", *file.relative_to(home).with_suffix("").parts)))


def config_folders() -> list[Path]:
    """Where the shipped configs are: a checkout's, else an installation's (an editable one may hold stale copies)."""
    checkout = Path(__file__).resolve().parents[2] / "configs"
    installed = [Path(p) / "share" / "cod-lightning" / "configs" for p in (sys.prefix, sysconfig.get_path("data"))]
    return [folder for folder in (checkout, *installed) if folder.is_dir()][:1]


def config_names() -> list[str]:
    """Names that `--config` takes: files at the top and under experiment/."""
    named = ("", "experiment/")
    return sorted(
        f"{of}{path.stem}" for folder in config_folders() for of in named for path in (folder / of).glob("*.yaml")
    )


def groups() -> set[str]:
    """The config groups."""
    return {path.name for folder in config_folders() for path in folder.iterdir() if path.is_dir()}


def files_of(group: str) -> dict[str, Path]:
    """The files of a config group, by the names that choose them."""
    return {path.stem: path for folder in config_folders() for path in sorted((folder / group).glob("*.yaml"))}


def choices_of(group: str) -> list[str]:
    """Names of the files of a config group."""
    return sorted(files_of(group))
