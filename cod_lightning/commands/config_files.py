"""From what is typed to what LightningCLI parses: one config, as a text, and every override behind it.

    fit --config quickstart --model.loss GSPO env=levers --model.lr 1e-4

1. `keys_of` splits the line into keys and values.
2. Hydra composes each `--config` that has a `defaults:` list, with the choices (`env=levers`) in its groups (`shipped.py`).
3. Configs, then typed classes (`--model.loss GSPO`) and lists, are merged; a class of another name replaces the one before.
4. The line becomes `fit --config 'model: {loss: ...' --model.lr=1e-4`; jsonargparse parses and checks every key and value.

`env=levers`, `--env levers` and `--data.env levers` say the same, as do `env.max_turns=3` and `--data.env.max_turns 3`. A name
among `data.suites` stands for the suites of `configs/suite/NAME.yaml` or of a file; so does a suite's `env`.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cod_lightning.commands.shipped import (
    CLASS_KEYS,
    below_init_args,
    classes,
    composed,
    config_folder,
    config_names,
    did_you_mean_class,
    files_of,
    groups,
    import_named,
    overlaid,
)
from cod_lightning.errors import ConfigError, did_you_mean, in_a_line, some_of
from cod_lightning.files import checkpoint_file
from cod_lightning.trusted import parsed, read_config

_FLAGS = ("--print_config", "--print_jobs", "--help", "-h", "--trust", "--dry_run")
"""Options without a value."""
_OF_A_RUN = {"checkpoints", "metrics.csv"}
"""What lies beside the config of a run."""


@dataclass(frozen=True)
class Expanded:
    """A command line with one config, which is a text."""

    argv: list[str]
    name: str
    """Of the run: the stem of the first config file that was typed."""


def expand(argv: Sequence[str], own: Mapping[str, Any] | None = None) -> Expanded:
    """The line for LightningCLI, behind the command. `own` is a config below all that are typed."""
    paths: list[Path] = []
    choices: list[str] = []
    values: list[tuple[str, Any]] = []
    others: list[str] = []
    for typed, value in keys_of(argv):
        key = full_key(typed.removeprefix("--"))
        group = next((group for group, of in CLASS_KEYS.items() if key in (group, of)), None)
        if key in ("config", "-c") and (value is not None or typed.startswith("-")):  # a bare word is one of --help's
            paths.append(find_config(value or ""))
        elif value is None:
            if not typed.startswith("-") and not {"--help", "-h"} & set(argv):
                meant = f"Did you mean --config {typed}?" if typed in config_names() else "See --help."
                raise ConfigError("command line", typed, "--config NAME, GROUP=CHOICE or --KEY VALUE", meant)
            others.append(typed)
        elif group is not None:
            named = shipped_or_class(group, value, typed)
            if isinstance(named, Path):
                choices.append(f"{group}={named.stem}")
            elif group == "policy":  # no part of the config: the parser keeps what both classes take, such as a `path`
                chosen = below_init_args(class_of(named, typed))
                whole = isinstance(chosen, dict) and "init_args" in chosen
                others.append(f"--{CLASS_KEYS[group]}={json.dumps(chosen, default=str) if whole else named}")
            else:
                values.append((CLASS_KEYS[group], class_of(named, typed)))
        elif key in groups() or not key.removesuffix("+").replace(".", "").replace("-", "").isidentifier():
            choices.append(f"{key}={value}")
        elif key == "data.suites" or (
            value.lstrip()[:1] == "[" and "{" in value
        ):  # whole, since the parser merges lists
            listed = _read(value)  # names may stand without brackets
            values.append((key, [one.strip() for one in listed.split(",")] if isinstance(listed, str) else listed))
        else:
            others.append(f"--{key}={value}")
    if not paths and own is None and not any("help" in one or one == "-h" for one in others):
        remedy = "Name one, as in --config quickstart, or --config RUN_DIR/config.yaml for a checkpoint."
        raise ConfigError("--config", "missing", "a config", remedy)
    others.sort(key=lambda one: not one.startswith("--model.policy="))  # the class before its options
    content = _merged(paths, choices, values, own)
    if content.get("ckpt_path") is None:
        content.pop("ckpt_path", None)  # the config of a run has it, and not every command
    import_named(f"{' '.join([*argv, *others])} {content}")
    if content:
        # the parser takes YAML behind --config as it takes a file
        others = ["--config", yaml.safe_dump(below_init_args(content), sort_keys=False), *others]
    return Expanded(others, paths[0].stem if paths else "run")


def _merged(
    paths: Sequence[Path], choices: Sequence[str], values: Sequence[tuple[str, Any]], own: Mapping[str, Any] | None
) -> Any:
    """The files over `own` in their order, each composed with the choices where it has a `defaults:` list, and over all of them the
    values of dotted keys."""
    content: Any = dict(own or {})
    files = [(path, read_keys(path, "--config", path)) for path in paths]
    if choices and not any("defaults" in keys for _, keys in files):
        expected = "a --config with a defaults: list to apply it to"
        raise ConfigError("command line", choices[0], expected, "Name a config first.")
    for path, keys in files:
        keys = composed(path, choices)[0] if "defaults" in keys else keys
        if path.name == "config.yaml" and {*os.listdir(path.parent)} >= _OF_A_RUN:  # it may have been copied, or moved
            keys = overlaid(keys, {"trainer": {"default_root_dir": str(path.parent)}})
        content = overlaid(content, below_init_args(keys))
    for key, value in sorted(values, key=lambda one: one[0].count(".")):  # classes before their arguments
        for part in reversed(key.split(".")):
            value = {part: value}
        content = overlaid(content, value)
    data = content.get("data")
    if isinstance(data, dict) and isinstance(data.get("suites"), list):
        content["data"] = {**data, "suites": inline(data["suites"])}
    return content


def keys_of(argv: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Each key as it was typed, with its value: `--KEY VALUE`, `--KEY=VALUE`, `KEY=VALUE`; None behind a flag or a word.

    >>> list(keys_of(["fit", "--model.lr", "-1", "env=levers", "--trust", "--ckpt_path", "epoch=3.ckpt"]))
    [('fit', None), ('--model.lr', '-1'), ('env', 'levers'), ('--trust', None), ('--ckpt_path', 'epoch=3.ckpt')]
    """
    rest = list(argv)
    while rest:
        key, is_assigned, value = rest.pop(0).partition("=")
        if key[:1] == "-" != key[1:2] and key not in ("-c", "-h"):  # argparse would take it for -c or -h with a value
            raise ConfigError("command line", key, f"two dashes, as in -{key}", "Write it so.")
        if is_assigned:
            yield key, value
        else:
            has_value = key.startswith("-") and key not in _FLAGS and rest and not rest[0].startswith("--")
            yield key, rest.pop(0) if has_value else None


def see_checkpoints(argv: Sequence[str]) -> None:
    """Raise `ConfigError` for a checkpoint that is typed and not there, before libraries are imported, which takes seconds."""
    for key, value in keys_of(argv):
        if key.removeprefix("--") == "ckpt_path" and value not in (None, "last", "auto", "null"):
            checkpoint_file(value)


def full_key(key: str) -> str:
    """The key with the name of a class's group spelled out.

    >>> full_key("env.max_turns")
    'data.env.max_turns'
    """
    group, dot, rest = key.partition(".")
    return f"{CLASS_KEYS[group]}.{rest}" if dot and group in CLASS_KEYS else key


def shipped_or_class(group: str, value: str, key: str) -> Path | str:
    """The file that ships under this name in the group, or the value: a class path or name, a YAML file or {...}, null."""
    shipped = files_of(group)
    if (path := shipped.get(value.removeprefix(f"{group}/").removesuffix(".yaml"))) is not None:
        return path
    # a world is found by its path alone
    is_class = "." in value and not value.endswith((".yaml", ".yml", ".py"))
    is_class |= group != "env" and any(value in names for names in classes().values())
    if is_class or value == "null" or value[:1] == "{" or (os.path.isfile(value) and not value.endswith(".py")):
        return value
    files = f"one of {some_of([*shipped], value, most=20)}, a YAML file or a class path, as in my_file.MyWorld"
    meant = did_you_mean(value, [*shipped]) or (did_you_mean_class(value, group) if group != "env" else "")
    listed = "See `worlds`." if group == "env" else f"`fit --help {CLASS_KEYS[group]}` says more."
    expected = files if shipped else "a class by its name, as in credit=TaskCredit"
    raise ConfigError(key, f"{value:.200}" or "empty", expected, f"{meant}{listed}")


def class_of(value: str, key: str) -> Any:
    """What a class, typed behind this key, is in a config."""
    if value == "null" or value[:1] == "{":
        return _read(value)
    return read_yaml(Path(value), key, value) if os.path.isfile(value) else {"class_path": value}


def _read(value: str) -> Any:
    """A typed value; as it is where it is no YAML, which the parser answers."""
    try:
        return parsed(value.encode("utf-8", "surrogateescape"))
    except yaml.YAMLError:
        return value
    except (ValueError, RecursionError) as error:
        remedy = f"{in_a_line(error)}."
        raise ConfigError("command line", f"{value:.60} ...", "a value that a config can hold", remedy) from error


# ---------------------------------------------------------------------- configs


def find_config(name: str, key: str = "--config", group: str = "") -> Path:
    """The file that `--config NAME` means: a path, or a shipped config (of the group) with or without `.yaml`."""
    stem = name.removesuffix(".yaml").removeprefix("configs/").removeprefix(group)
    names = [*files_of(group)] if group else config_names()
    for path in (Path(name), config_folder() / f"{group}{stem}.yaml"):
        if os.path.isfile(path):  # False for a name that is too long, too
            return path
    expected = f"a YAML file, or one of {some_of(names, name or 'quickstart')}"
    meant = did_you_mean(stem, names, cutoff=0.6 if group or "/" in stem else 0.3)
    listed = "`fit --help config` lists all." if len(names) > 12 else "Check the spelling."
    raise ConfigError(key, f"{name:.200}" or "empty", expected, f"{meant}{listed}")


def read_keys(path: Path, key: str, name: object) -> dict[str, Any]:
    """As `read_yaml`, of a file with keys."""
    content = read_yaml(path, key, name)
    if not isinstance(content, dict):
        raise ConfigError(key, name, "a YAML file with keys, such as model and data", "See configs/smoke.yaml.")
    return content


def read_yaml(path: Path, key: str, name: object) -> Any:
    """What a YAML file holds. Raises `ConfigError` by this key and name for one that is none."""
    try:
        return read_config(path)
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(key, name, "a YAML file", f"Correct it: {in_a_line(error)}.") from error


# ---------------------------------------------------------------------- suites


def inline(suites: Sequence[Any]) -> list[Any]:
    """The list with every name of a file replaced by its suites, and every name of a shipped world by what its file says."""
    return [one for suite in suites for one in (read_suites(suite) if isinstance(suite, str) else [_with_world(suite)])]


def read_suites(name: str) -> list[dict[str, Any]]:
    """The suites of a file, by its shipped name or its path, as plain values that `data.suites` takes."""
    path = find_config(name, "data.suites", "suite/")
    content = read_yaml(path, "data.suites", name)
    suites = content if isinstance(content, list) else [content]
    if not suites or not all(isinstance(suite, dict) for suite in suites):
        raise ConfigError("data.suites", name, "a file with one suite or a list of suites", f"Look into {path}.")
    return [_with_world({"name": path.stem, **suite}) for suite in suites]


def _with_world(suite: Any) -> Any:
    """The suite with the whole file of a world that it names."""
    env = suite.get("env") if isinstance(suite, dict) else None
    if not isinstance(env, str):
        return suite
    named = shipped_or_class("env", env, f"env of suite {suite.get('name')}")
    return {**suite, "env": yaml.safe_load(named.read_text()) if isinstance(named, Path) else named}
