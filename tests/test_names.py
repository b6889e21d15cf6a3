"""A class has a name of its own: no two of them share one, wherever they are."""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("cod_lightning", "datamodules", "modules", "callbacks")


@cache
def definitions() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Files by the name of a class, and by the name of a type of functions."""
    classes: dict[str, list[str]] = defaultdict(list)
    aliases: dict[str, list[str]] = defaultdict(list)
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        text = path.read_text()
        for found, pattern in ((classes, r"^ *class (\w+)[:(\[]"), (aliases, r"^(\w+) = Callable\[")):
            for name in re.findall(pattern, text, re.MULTILINE):
                found[name].append(str(path.relative_to(ROOT)))
    return classes, aliases


def test_neither_two_classes_nor_two_types_of_functions_share_a_name() -> None:
    classes, _ = definitions()
    assert len(classes) > 300
    assert {name: files for name, files in classes.items() if len(files) > 1} == {}
    classes, aliases = definitions()
    shared = {name: files for name, files in aliases.items() if len(files) + len(classes.get(name, [])) > 1}
    assert shared == {}
