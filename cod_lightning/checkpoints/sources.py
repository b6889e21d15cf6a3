"""The files that decide what classes do: their modules, and what these import, but no library."""

import ast
import contextlib
import importlib.util
import re
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

_LIBRARIES = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def sources(modules: Iterable[str]) -> list[Path]:
    """The source of each module and of all that it imports, anywhere in it, from its own package or from outside the libraries.

    Nothing is imported for it, so that the answer does not depend on what this process has imported.
    """
    todo = sorted(set(modules))
    own = {name.partition(".")[0] for name in todo}
    found: dict[str, Path] = {}
    specs: dict[str, ModuleSpec | None] = {}
    while todo:
        name = todo.pop()
        top = name.partition(".")[0]
        if top not in specs:
            specs[top] = _spec(top, own)
        if name not in found and (path := _file(specs[top], name)):
            found[name] = path
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            todo += _imports(path, package)
    return [found[name] for name in sorted(found)]


def class_paths(config: str) -> list[str]:
    """The classes that a config (YAML) names, sorted."""
    return sorted(set(re.findall(r"\bclass_path: ([\w.]+\.\w+)", config)))


def _spec(top: str, own: set[str]) -> ModuleSpec | None:
    """Of a module without a dot; None for one of a library."""
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # such as __main__
        return None
    if spec is None or top in own:
        return spec
    places = [spec.origin or "", *(spec.submodule_search_locations or ())]
    is_library = spec.origin in ("built-in", "frozen") or any(
        Path(place).is_relative_to(folder) for place in places if place for folder in _LIBRARIES
    )
    return None if is_library else spec


def _file(spec: ModuleSpec | None, name: str) -> Path | None:
    """Where the module's source lies; None where it has none, as a class that is imported by name."""
    if spec is None:
        return None
    rest = name.split(".")[1:]
    if spec.submodule_search_locations is None:
        places = [] if rest else [Path(spec.origin or "")]
    else:
        folders = [Path(place, *rest) for place in spec.submodule_search_locations]
        places = [place for folder in folders for place in (folder / "__init__.py", folder.with_suffix(".py"))]
    return next((place for place in places if place.suffix == ".py" and place.is_file()), None)


def _imports(path: Path, package: str) -> Iterator[str]:
    """Names of what a file may import: of `from a import b` both a and a.b."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with contextlib.suppress(ImportError):  # of a file that serves with and without a package
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
