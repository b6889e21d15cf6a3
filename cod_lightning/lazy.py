"""Packages whose classes are imported when they are asked for, so that what is not chosen costs neither time nor memory."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazily(package: str, file: str) -> Callable[[str], Any]:
    """A package's `__getattr__` (PEP 562) that imports each name from its module on first use.

    `from PACKAGE import NAME` and a `class_path` of PACKAGE.NAME then import that one module. The names are those that the package
    imports from its own modules under `TYPE_CHECKING`.

    Args:
        package: The package's `__name__`.
        file: Its `__file__`.
    """
    listed = ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
    own = [one for one in listed if isinstance(one, ast.ImportFrom) and f"{one.module}".startswith(f"{package}.")]
    homes = {name.name: f"{one.module}" for one in own for name in one.names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return get
