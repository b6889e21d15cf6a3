"""A config file as Hydra composes it, and what Hydra cannot compose in one line."""

import copy
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cod_lightning.commands.shipped import config_folders, config_names
from cod_lightning.errors import ConfigError, did_you_mean, some_of

_ADDED = ("program", "source", "replay", "reward")
"""Groups whose choice is added to a config that has made none: `source=bandit` is Hydra's `+source=bandit`."""

_SEVERAL = ("reward",)
"""Groups of which a config may choose several, in brackets: each adds a key of its own."""


@dataclass(frozen=True)
class Composed:
    """What Hydra made of a config file and overrides."""

    plain: dict[str, Any]
    """The config in plain containers."""
    choices: dict[str, str]
    """Group -> the choice made in it."""
    axes: dict[str, str]
    """What the file itself sweeps over (`hydra.sweeper.params`)."""


def composed(path: Path, overrides: Sequence[str]) -> Composed:
    """The file, composed; `ConfigError` in one line where Hydra cannot.

    An environment or context of which the file names the class takes nothing from that of another class in its defaults.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import DictConfig, OmegaConf, open_dict
    from omegaconf.errors import OmegaConfBaseException

    for one in overrides:
        if (several := re.fullmatch(r"\+?(\w+)=\[(.*)\]", one)) and several[1] not in _SEVERAL:
            expected = "one choice, since the last of several takes the place of the others"
            remedy = f"Choose one; sweep ... {several[1]}={several[2]} trains each."
            raise ConfigError(several[1], f"[{several[2]}]", expected, remedy)
    GlobalHydra.instance().clear()
    folders = [str(folder) for folder in (*config_folders(), path.resolve().parent)]

    def compose(node: Any) -> tuple[Any, Any]:
        ConfigStore.instance().store(name="__main__", node=node, package="_global_")
        with initialize_config_dir(config_dir=folders[0], version_base="1.3"):
            extra = ",".join(f"file://{folder}" for folder in folders[1:])
            search = [f"hydra.searchpath=[{extra}]"] if extra else []
            with warnings.catch_warnings():
                warnings.filterwarnings("error", ".*missing `_self_`.*")
                config = hydra_compose("__main__", overrides=[*overrides, *search], return_hydra_config=True)
        with open_dict(config):
            hydra = config.pop("hydra")
        return OmegaConf.to_container(config, resolve=True), hydra

    try:
        node: Any = OmegaConf.load(path)
        plain, hydra = compose(node)
        for key in ("env", "context"):
            if isinstance(mine := (node.get("data") or {}).get(key), DictConfig) and "class_path" in mine:
                without = copy.deepcopy(node)
                del without.data[key]
                _without_arguments_of_another(plain["data"][key], compose(without)[0]["data"].get(key), mine, overrides)
    except UserWarning as error:
        expected = "_self_ in its defaults list, without which the defaults replace what the file says itself"
        raise ConfigError("--config", path, expected, "Add `- _self_` as the last of them.") from error
    except RecursionError as error:
        raise ConfigError("--config", path, "defaults that do not lead back to itself", "Leave one out.") from error
    except (HydraException, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split())
        absent = re.search(r"Could not override '(\w+)'\. No match in the defaults list", reason)
        if absent and absent[1] in _ADDED and f"+{absent[1]}" not in "".join(overrides):
            more = [f"+{one}" if one.partition("=")[0] == absent[1] else one for one in overrides]
            return composed(path, more)
        raise _not_composed(path, reason) from error
    chosen = {k: str(v) for k, v in hydra.runtime.choices.items() if not k.startswith("hydra/") and v is not None}
    return Composed(plain, chosen, {k: str(v) for k, v in (hydra.sweeper.params or {}).items()})


def _without_arguments_of_another(
    merged: dict[str, Any], before: Any, own: Mapping[str, Any], overrides: Sequence[str]
) -> None:
    """Take out of a class that the file names itself the arguments of the one that its defaults named."""
    if not isinstance(before, dict) or before.get("class_path") in (None, merged["class_path"]):
        return
    typed = (one.partition("=")[0].rpartition(".")[2] for one in overrides)
    stated = {*own, *(own.get("init_args") or ()), *typed}
    merged["init_args"] = {name: value for name, value in merged.get("init_args", {}).items() if name in stated}


def _not_composed(path: Path, reason: str) -> ConfigError:
    """What Hydra cannot compose, in the words of this project: a choice that does not ship, or a default that is not there."""
    if choice := re.search(
        r"Could not find '([\w/]+)/([^'/]+)' Available options in '\1': (.*?) Config search path", reason
    ):
        group, value, shipped = choice[1], choice[2], choice[3].split()
        return ConfigError(
            group,
            value,
            f"one of {some_of(shipped, value, most=20)}",
            f"{did_you_mean(value, shipped)}See configs/{group}.",
        )
    remedy = reason.partition(" Config search path")[0].rstrip(".") + "."
    if absent := re.search(r"Could not load '([^']*)'", remedy):
        remedy += f" {did_you_mean(absent[1], config_names(), cutoff=0.3)}".rstrip()
    return ConfigError("--config", path, "a config that Hydra can compose", remedy)
