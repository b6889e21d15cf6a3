"""What ships as YAML: where it is, by which names a command line takes it, and what Hydra composes of it."""

import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from cod_lightning.errors import ConfigError, did_you_mean, in_a_line, some_of

CLASS_KEYS = {
    "env": "data.env",
    "context": "data.context",
    "engine": "data.engine",
    "program": "data.program",
    "source": "data.source",
    "replay": "data.replay",
    "policy": "model.policy",
    "loss": "model.loss",
    "credit": "model.credit",
    "baseline": "model.baseline",
}
"""Short name of a key -> the key, whose value is a class; env and context are groups of files, too."""
_ROOMS = ("contexts", "credit", "engines", "lifecycles", "methods", "models", "objective", "rewards", "training")
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


def did_you_mean_class(wrong: str, group: str) -> str:
    """The sentence that names the nearest class, of the whole name or of one without the word for its group.

    >>> did_you_mean_class("gspo", "loss"), did_you_mean_class("task", "credit")
    ('Did you mean GSPO? ', 'Did you mean TaskCredit? ')
    """
    names = sorted(set().union(*classes().values()) - {group.title()})  # the last is what they derive from
    return did_you_mean(wrong, names, cutoff=0.87) or did_you_mean(f"{wrong}{group}", names, cutoff=0.8)


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


def composed(path: Path, choices: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The file with these choices in plain containers, and what it sweeps over itself (`hydra.sweeper.params`); `ConfigError` in
    one line where Hydra cannot compose it.

    What the file says itself stands above its defaults, and a choice in a group from which these have made none above both. A class
    takes nothing from one of another name below it.
    """
    from omegaconf import OmegaConf

    with _composable(path, choices):
        own: Any = OmegaConf.to_container(OmegaConf.load(path))
        primary = {key: own.pop(key) for key in ("defaults", "hydra") if key in own}
        plain, hydra = _compose(path, primary, [])
        there = {group.partition("@")[0] for group in hydra.runtime.choices}  # with null where there is none yet
        added = [one for one in choices if one.partition("=")[0].removeprefix("+") in groups() - there]
        if of_defaults := [one for one in choices if one not in added]:
            plain, hydra = _compose(path, primary, of_defaults)
        plain = overlaid(plain, own)
        if added:
            plain = overlaid(plain, _compose(path, {}, [f"+{one.removeprefix('+')}" for one in added])[0])
        whole: Any = OmegaConf.to_container(OmegaConf.create(plain), resolve=True)
    return whole, {key: str(values) for key, values in (hydra.sweeper.params or {}).items()}


@contextmanager
def _composable(path: Path, choices: Sequence[str]) -> Iterator[None]:
    """Raise `ConfigError` for several choices in one group, which Hydra would list, and for what Hydra refuses."""
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf.errors import OmegaConfBaseException

    for choice in choices:
        key, _, value = choice.partition("=")
        if value.startswith("["):
            expected = "one choice, since the last of several takes the place of the others"
            remedy = f"Choose one; sweep ... {key}={value[1:-1]:.200} trains each."
            raise ConfigError(key, f"{value:.200}", expected, remedy)
    try:
        yield
    except MissingConfigException as error:
        group, _, value = (error.missing_cfg_file or "").rpartition("/")
        known = error.options or config_names()
        of_lightning = f"For one of Lightning's: --trainer.strategy {value}. " if group == "strategy" else ""
        remedy = f"{of_lightning or did_you_mean(value, known, cutoff=0.3)}See configs/{group}."
        raise ConfigError(
            group or f"defaults of {path}", value, f"one of {some_of(known, value, most=20)}", remedy
        ) from error
    except (HydraException, OmegaConfBaseException, ValueError, RecursionError) as error:
        expected = f"a config that Hydra can compose ({in_a_line(error)})"
        raise ConfigError("--config", path, expected, "Correct it, or what is chosen beside it.") from error


def _compose(path: Path, primary: dict[str, Any], overrides: Sequence[str]) -> tuple[Any, Any]:
    """The config, its interpolations as they stand, and Hydra's own."""
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf, open_dict

    GlobalHydra.instance().clear()
    ConfigStore.instance().store(name="__main__", node=primary, package="_global_")
    with initialize_config_dir(config_dir=str(config_folder()), version_base="1.3"):
        beside = f"hydra.searchpath=[file://{path.resolve().parent}]"
        config = compose("__main__", overrides=[*overrides, beside], return_hydra_config=True)
    with open_dict(config):
        hydra = config.pop("hydra")
    return OmegaConf.to_container(config), hydra


def overlaid(before: Any, after: Any) -> Any:
    """A config with another one over it, key by key; a class of another name takes the place of the one before.

    >>> overlaid({"class_path": "a.Levers", "init_args": {"max_turns": 2, "labels": None}}, {"max_turns": 3})
    {'class_path': 'a.Levers', 'init_args': {'max_turns': 3, 'labels': None}}
    >>> overlaid({"class_path": "a.Levers", "init_args": {"max_turns": 2}}, {"class_path": "b.Doors"})
    {'class_path': 'b.Doors'}
    """
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    if "class_path" in before:
        after = below_init_args({"class_path": before["class_path"], **after})
        one, other = sorted((str(before["class_path"]), str(after["class_path"])), key=len)
        if not f".{other}".endswith(f".{one}"):  # a name is that of any path that ends so
            return after
        after["class_path"] = other
    return before | {key: overlaid(before.get(key), value) for key, value in after.items()}


def below_init_args(value: Any) -> Any:
    """The config with what stands beside a `class_path` put below its `init_args`.

    >>> below_init_args({"env": {"class_path": "radio.Radio", "max_turns": 3}})
    {'env': {'class_path': 'radio.Radio', 'init_args': {'max_turns': 3}}}
    """
    if isinstance(value, list):
        return [below_init_args(one) for one in value]
    if not isinstance(value, dict):
        return value
    value = {key: below_init_args(one) for key, one in value.items()}
    own, inside = ("class_path", "init_args", "dict_kwargs"), value.get("init_args") or {}
    if "class_path" not in value or not isinstance(inside, dict):  # which the parser refuses by its key
        return value
    beside = {key: value.pop(key) for key in list(value) if key not in own}
    return value | {"init_args": {**inside, **beside}} if beside else value
