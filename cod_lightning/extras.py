"""Checks, before anything is built, that a package or a program is there which some policies, environments or launchers need."""

import shutil
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from cod_lightning.errors import ConfigError

_OLDEST = {
    "peft": "0.18",
    "bitsandbytes": "0.50",
    "gguf": "0.19",
    "hydra-joblib-launcher": "1.2",
    "hydra-submitit-launcher": "1.2",
    "reasoning-gym": "0.1.25",
    "textarena": "0.7.4",
    "textworld": "1.7.0",
    "openenv": "0.10.0",
    "mcp": "1.24.0",
}
"""Oldest version that works."""


def require(package: str, key: str, value: object) -> None:
    """Raise `ConfigError` unless `package` is installed and not too old for the `value` of `key`."""
    from packaging.version import Version

    oldest = _OLDEST[package]
    install = f"Do pip install '{package}>={oldest}'."
    try:
        installed = version(package)
    except PackageNotFoundError:
        raise ConfigError(key, value, f"{package} in this environment, which has none", install) from None
    if Version(installed) < Version(oldest):
        raise ConfigError(key, value, f"{package} {oldest} or newer, not {installed}", install)


def check_runnable(command: Sequence[str], key: str) -> None:
    """Raise `ConfigError` unless a command, given with its arguments, begins with a program that can be run."""
    if not command or shutil.which(command[0]) is None:
        raise ConfigError(key, command, "a program that can be run here", "Install it, or name it by its path.")
