"""Checks, before anything is built, that a package is there which only some policies or environments need."""

from importlib.metadata import PackageNotFoundError, version

from cod_lightning.errors import ConfigError

_OLDEST = {
    "peft": ("0.18", "lora"),
    "bitsandbytes": ("0.50", "qlora"),
    "liger-kernel": ("0.8", "liger"),
    "gguf": ("0.19", "gguf"),
    "reasoning-gym": ("0.1.25", "reasoning-gym"),
    "textarena": ("0.7.4", "textarena"),
    "textworld": ("1.7.0", "textworld"),
    "openenv": ("0.10.0", "openenv"),
    "mcp": ("1.24.0", "mcp"),
}
"""Oldest version that works, and the extra that installs it."""


def require(package: str, key: str, value: object) -> None:
    """Raise `ConfigError` unless `package` is installed and not too old for the `value` of `key`."""
    from packaging.version import Version

    oldest, extra = _OLDEST[package]
    install = f"Do pip install 'cod-lightning[{extra}]'."
    try:
        installed = version(package)
    except PackageNotFoundError:
        raise ConfigError(key, value, f"{package} in this environment, which has none", install) from None
    if Version(installed) < Version(oldest):
        raise ConfigError(key, value, f"{package} {oldest} or newer, not {installed}", install)
