"""Checks, before weights are loaded, that a package is there which only some policies need."""

from importlib.metadata import PackageNotFoundError, version

from cod_lightning.errors import ConfigError

_OLDEST = {"peft": "0.18", "bitsandbytes": "0.50"}
_INSTALL = "pip install 'cod-lightning[qlora]'."


def require(package: str, key: str, value: str) -> None:
    """Raise `ConfigError` unless `package` is installed and not too old for the `value` of `key`."""
    from packaging.version import Version

    try:
        installed = version(package)
    except PackageNotFoundError:
        raise ConfigError(key, value, f"{package} in this environment, which has none", f"Do {_INSTALL}") from None
    if Version(installed) < Version(_OLDEST[package]):
        raise ConfigError(key, value, f"{package} {_OLDEST[package]} or newer, not {installed}", f"Do {_INSTALL}")
