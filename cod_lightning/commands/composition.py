"""A config file as Hydra composes it."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cod_lightning.commands.shipped import config_folders, config_names, groups
from cod_lightning.errors import ConfigError, did_you_mean, some_of


@dataclass(frozen=True)
class Composed:
    """What Hydra made of a config file and choices in its groups."""

    plain: dict[str, Any]
    """The config in plain containers."""
    choices: dict[str, str]
    """Group -> the choice made in it."""
    axes: dict[str, str]
    """What the file itself sweeps over (`hydra.sweeper.params`)."""


def check_single(key: str, value: str) -> None:
    """Raise `ConfigError` for several choices where one is made."""
    if value.startswith("["):
        expected = "one choice, since the last of several takes the place of the others"
        raise ConfigError(
            key, f"{value:.200}", expected, f"Choose one; sweep ... {key}={value[1:-1]:.200} trains each."
        )


def composed(path: Path, choices: Sequence[str]) -> Composed:
    """The file with these choices; `ConfigError` in one line where Hydra cannot compose it.

    A choice in a group from which the file has made none is added to it. A class that the file names itself takes nothing from that
    of another name in its defaults.
    """
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for choice in choices:
        key, _, value = choice.lstrip("+~").partition("=")
        if key.startswith("hydra."):
            remedy = "--trainer.default_root_dir sets the folder of a run, --out that of a sweep."
            raise ConfigError("command line", choice, "no key of Hydra's own, which only composes configs here", remedy)
        check_single(key, value)
    try:
        node: Any = OmegaConf.load(path)
        made = _compose(path, node, [])[1].runtime.choices if choices else {}  # with null where there is none yet
        added = groups() - {group.partition("@")[0] for group in made}
        lines = [f"+{choice}" if choice.partition("=")[0] in added else choice for choice in choices]
        plain, hydra = _compose(path, node, lines)
        own = OmegaConf.to_container(node)
        if _names_class(own):
            below, _ = _compose(path, OmegaConf.create({"defaults": node.defaults}), lines)
            _leave_out_arguments_of_another(plain, below, own)
    except UserWarning as error:
        expected = "_self_ in its defaults list, without which the defaults replace what the file says itself"
        raise ConfigError("--config", path, expected, "Add `- _self_` as the last of them.") from error
    except RecursionError as error:
        raise ConfigError("--config", path, "defaults that do not lead back to itself", "Leave one out.") from error
    except MissingConfigException as error:
        group, _, value = (error.missing_cfg_file or "").rpartition("/")
        known = error.options or config_names()
        remedy = f"{did_you_mean(value, known, cutoff=0.3)}See configs/{group}."
        raise ConfigError(
            group or f"defaults of {path}", value, f"one of {some_of(known, value, most=20)}", remedy
        ) from error
    except (HydraException, OmegaConfBaseException) as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise ConfigError("--config", path, "a config that Hydra can compose", f"{said}.") from error
    return Composed(plain, _chosen(hydra), {k: str(v) for k, v in (hydra.sweeper.params or {}).items()})


def _compose(path: Path, node: Any, overrides: Sequence[str]) -> tuple[Any, Any]:
    """The config, and Hydra's own."""
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf, open_dict

    GlobalHydra.instance().clear()
    folders = [str(folder) for folder in (*config_folders(), path.resolve().parent)]
    ConfigStore.instance().store(name="__main__", node=node, package="_global_")
    with initialize_config_dir(config_dir=folders[0], version_base="1.3"), warnings.catch_warnings():
        warnings.filterwarnings("error", ".*missing `_self_`.*")
        search = [f"hydra.searchpath=[{','.join(f'file://{folder}' for folder in folders[1:])}]"] if folders[1:] else []
        config = compose("__main__", overrides=[*overrides, *search], return_hydra_config=True)
    with open_dict(config):
        hydra = config.pop("hydra")
    return OmegaConf.to_container(config, resolve=True), hydra


def _chosen(hydra: Any) -> dict[str, str]:
    return {k: str(v) for k, v in hydra.runtime.choices.items() if not k.startswith("hydra/") and v is not None}


def _names_class(content: Any) -> bool:
    """Whether a class is named anywhere in it, outside of lists, which replace what stands below."""
    return isinstance(content, dict) and ("class_path" in content or any(map(_names_class, content.values())))


def _leave_out_arguments_of_another(whole: Any, below: Any, own: Any) -> None:
    """Take out of each class that the file names itself (`own`) the arguments of the one that its defaults named (`below`)."""
    if not all(isinstance(one, dict) for one in (whole, below, own)):
        return
    named, before = own.get("class_path"), below.get("class_path")
    if named is not None and before not in (None, named) and whole["class_path"] == named:
        whole["init_args"] = {
            k: v for k, v in (whole.get("init_args") or {}).items() if k in (own.get("init_args") or {})
        }
        return
    for key in own.keys() & whole.keys():
        _leave_out_arguments_of_another(whole[key], below.get(key), own[key])
