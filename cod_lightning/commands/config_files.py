"""Config files by name, composed by Hydra where they have a `defaults:` list, then handed to LightningCLI as plain YAML.

    fit --config quickstart env=levers --model.lr 1e-4

becomes `fit --config /tmp/.../quickstart.yaml --model.lr 1e-4`: composition comes first, typed overrides later, and
`--print_config` shows (and reloads as) the result.
"""

import difflib
import re
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cod_lightning.errors import ConfigError
from cod_lightning.scratch import scratch_prefix

_GROUP_CHOICE = re.compile(r"^[+~]?[A-Za-z_][\w./@]*=.*$")
_FLAGS_WITHOUT_VALUE = ("--print_config", "--print_jobs", "--help", "--trust")


@dataclass(frozen=True)
class Expanded:
    """A command line in which every config is a plain file."""

    argv: list[str]
    names: tuple[str, ...]
    """Stems of the config files, as typed."""


def config_folders() -> list[Path]:
    """Where the shipped configs are: a checkout's, else an installation's (an editable one may hold stale copies)."""
    checkout = Path(__file__).resolve().parents[2] / "configs"
    installed = [Path(p) / "share" / "cod-lightning" / "configs" for p in (sys.prefix, sysconfig.get_path("data"))]
    return [folder for folder in (checkout, *installed) if folder.is_dir()][:1]


def config_names() -> list[str]:
    """Names that `--config` takes: files at the top and under experiment/, study/ and warm_start/."""
    found = (path.relative_to(folder).with_suffix("") for folder in config_folders() for path in folder.rglob("*.yaml"))
    return sorted(
        {str(name) for name in found if len(name.parts) == 1 or name.parts[0] in ("experiment", "study", "warm_start")}
    )


def find_config(name: str, key: str = "--config") -> Path:
    """The file that `name`, the value of `key`, means: a path, or a shipped config with or without `.yaml`."""
    if Path(name).is_file():
        return Path(name)
    stem = name.removesuffix(".yaml").removeprefix("configs/")
    for folder in config_folders():
        if (path := folder / f"{stem}.yaml").is_file():
            return path
    close = difflib.get_close_matches(stem, config_names(), n=1, cutoff=0.3)
    nearest = f"Did you mean {close[0]}? " if close else ""
    expected = f"a file, or one of {', '.join(config_names())}"
    raise ConfigError(key, name or "empty", expected, f"{nearest}Check the spelling.")


def expand(argv: Sequence[str]) -> Expanded:
    """Compose every `--config` file with the group choices (`env=levers`), and spell out the suites that it names."""
    from cod_lightning.commands.suite_files import with_suites

    choices, others = split_choices(argv)
    out: list[str] = []
    names: list[str] = []
    composed_any = False
    rest = iter(others)
    for arg in rest:
        flag, _, value = arg.partition("=")
        if flag not in ("--config", "-c"):
            out.append(arg)
            continue
        name = value or next(rest, "")
        path = find_config(name)
        names.append(path.stem)
        composes = _has_defaults(path)
        composed_any |= composes
        out += ["--config", str(with_suites(compose(path, choices) if composes else path))]
    if choices and not composed_any:
        raise ConfigError(
            "command line", choices[0], "a --config with a defaults: list to apply it to", "Name a config first."
        )
    return Expanded(out, tuple(names))


def split_choices(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Group choices, and everything else: `a=b` behind a flag is that flag's value (`--ckpt_path epoch=3.ckpt`)."""
    choices: list[str] = []
    others: list[str] = []
    for before, arg in zip(["", *argv], argv, strict=False):
        is_flag = before == "-c" or (before.startswith("--") and "=" not in before)
        is_value = is_flag and before not in _FLAGS_WITHOUT_VALUE
        (choices if _GROUP_CHOICE.match(arg) and not is_value else others).append(arg)
    return choices, others


def _has_defaults(path: Path) -> bool:
    """Whether Hydra is to compose the file; `ConfigError` if it is no YAML."""
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())
        raise ConfigError("--config", path, "a YAML file", f"Correct it: {said}.") from error
    return isinstance(content, dict) and "defaults" in content


def compose(path: Path, choices: Sequence[str]) -> Path:
    """The composed config as a plain YAML file in a temporary folder that lives as long as the process."""
    return temporary_config(path.name, composed(path, choices).plain)


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
    """The file, composed; `ConfigError` in one line where Hydra cannot."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf, open_dict
    from omegaconf.errors import OmegaConfBaseException

    GlobalHydra.instance().clear()
    folders = [str(folder) for folder in (*config_folders(), path.resolve().parent)]
    ConfigStore.instance().store(name="__main__", node=OmegaConf.load(path), package="_global_")
    try:
        with initialize_config_dir(config_dir=folders[0], version_base="1.3"):
            extra = ",".join(f"file://{folder}" for folder in folders[1:])
            search = [f"hydra.searchpath=[{extra}]"] if extra else []
            config = hydra_compose("__main__", overrides=[*overrides, *search], return_hydra_config=True)
        with open_dict(config):
            hydra = config.pop("hydra")
        plain: Any = OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError("--config", path, "a config that Hydra can compose", " ".join(str(error).split())) from error
    chosen = {k: str(v) for k, v in hydra.runtime.choices.items() if not k.startswith("hydra/") and v is not None}
    return Composed(plain, chosen, {k: str(v) for k, v in (hydra.sweeper.params or {}).items()})


def temporary_config(name: str, content: object) -> Path:
    """The content as a YAML file of that name in a temporary folder that lives as long as the process."""
    target = Path(_folder().name) / name
    target.write_text(yaml.safe_dump(content, sort_keys=False))
    return target


_temporary: list["tempfile.TemporaryDirectory[str]"] = []


def _folder() -> "tempfile.TemporaryDirectory[str]":
    _temporary.append(tempfile.TemporaryDirectory(prefix=scratch_prefix("config")))
    return _temporary[-1]
