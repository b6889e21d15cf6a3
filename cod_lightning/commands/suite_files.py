"""Suites as files: `in_domain` among `data.suites` stands for what `configs/suite/in_domain.yaml` says.

A file holds one suite, or a list of them. Its `env` may be the name of a shipped world; without a `name` a suite is called as
its file.
"""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from cod_lightning.commands.config_files import config_folders, temporary_config
from cod_lightning.errors import ConfigError


def suite_names() -> list[str]:
    """The shipped suites."""
    return sorted(path.stem for folder in config_folders() for path in (folder / "suite").glob("*.yaml"))


def read_suites(name: str, key: str = "--suites") -> list[dict[str, Any]]:
    """The suites of a file, by its shipped name or its path, as plain values that `data.suites` takes."""
    path = _find(name, key)
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(key, name, "a YAML file", f"Correct it: {' '.join(str(error).split())}.") from error
    suites = content if isinstance(content, list) else [content]
    if not suites or not all(isinstance(suite, dict) for suite in suites):
        raise ConfigError(key, name, "a file with one suite or a list of suites", f"Look into {path}.")
    return [_complete(suite, path) for suite in suites]


def inline(suites: Sequence[Any], key: str = "data.suites") -> list[Any]:
    """The list with every name replaced by the suites of its file; suites that are spelled out stay as they are."""
    return [each for suite in suites for each in (read_suites(suite, key) if isinstance(suite, str) else [suite])]


def with_suites(config: Path) -> Path:
    """The config file, or a copy of it in which `data.suites` names no files."""
    content: Any = yaml.safe_load(config.read_text())
    data: Any = content.get("data") if isinstance(content, dict) else None
    suites = data.get("suites") if isinstance(data, dict) else None
    if not isinstance(suites, list) or not any(isinstance(suite, str) for suite in suites):
        return config
    return temporary_config(config.name, {**content, "data": {**data, "suites": inline(suites)}})


def chosen(argv: Sequence[str], flag: str = "--suites") -> list[str]:
    """The command line with `--suites '[in_domain, mine.yaml]'` as a config of its own, which replaces earlier suites."""
    out: list[str] = []
    rest = iter(argv)
    for arg in rest:
        name, is_assigned, value = arg.partition("=")
        if name != flag:
            out.append(arg)
            continue
        named = yaml.safe_load(value if is_assigned else next(rest, ""))
        names = [named] if isinstance(named, str) else named
        if not isinstance(names, list) or not names or not all(isinstance(each, str) for each in names):
            remedy = f"Write --suites '[{suite_names()[0]}]', for example."
            raise ConfigError(flag, named, "names of suites or of YAML files", remedy)
        out += ["--config", str(temporary_config("suites.yaml", {"data": {"suites": inline(names, flag)}}))]
    return out


def _find(name: str, key: str) -> Path:
    if Path(name).is_file():
        return Path(name)
    stem = name.removesuffix(".yaml").removeprefix("configs/").removeprefix("suite/")
    for folder in config_folders():
        if (path := folder / "suite" / f"{stem}.yaml").is_file():
            return path
    close = difflib.get_close_matches(stem, suite_names(), n=1, cutoff=0.3)
    nearest = f"Did you mean {close[0]}? " if close else ""
    expected = f"a YAML file, or one of {', '.join(suite_names())}"
    raise ConfigError(key, name or "empty", expected, f"{nearest}Check the spelling.")


def _complete(suite: dict[str, Any], path: Path) -> dict[str, Any]:
    """With the file's name where it has none, and its world spelled out."""
    env = suite.get("env")
    world = {"env": _world(env, path)} if isinstance(env, str) else {}
    return {"name": path.stem, **suite, **world}


def _world(name: str, path: Path) -> Any:
    for folder in config_folders():
        if (file := folder / "env" / f"{name}.yaml").is_file():
            return yaml.safe_load(file.read_text())
    raise ConfigError(f"env in {path}", name, "the name of a shipped world", "See `worlds`.")
