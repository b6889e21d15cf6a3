"""Packages whose classes are imported when they are asked for, so that what is not chosen costs neither time nor memory."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__` (PEP 562) that imports each name from its module on first use.

    `from PACKAGE import NAME` and a `class_path` of PACKAGE.NAME then import that one module.

    Args:
        package: The package's `__name__`.
        names: Modules below it -> the names of theirs that the package has, separated by spaces.
    """
    homes = {name: module for module, listed in names.items() for name in listed.split()}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return get
