"""The address of an endpoint and its key. The key is read where it is needed and never shown."""

import os
from urllib.parse import urlsplit

from cod_lightning.errors import ConfigError


def url_of(address: str | None, where: str, variable: str) -> str:
    """`address`, else what the environment variable holds. Raises `ConfigError` if it is no address, or holds a secret."""
    expected = "an http or https address without credentials, such as http://localhost:8000/v1"
    url = address or os.environ.get(variable, "")
    return checked_address(url, f"{where}.base_url", expected, f"Set it, or export {variable}.")


def checked_address(url: str, key: str, expected: str, remedy: str) -> str:
    """The address without slashes at its end. Raises `ConfigError` if it is none, or holds a secret, which is not shown."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        secret = parts.username or parts.password or parts.query
    except ValueError:
        usable = secret = False
    if not usable or secret:
        shown = "one with credentials or a query" if secret else url or "empty"
        raise ConfigError(key, shown, expected, remedy)
    return url.rstrip("/")


def key_of(variable: str, key: str) -> str:
    """The key in that environment variable; empty for none. Raises `ConfigError` (config key `key`) if no header can hold it."""
    value = os.environ.get(variable, "").strip()
    if not (value.isascii() and value.isprintable()):
        expected = "the name of an environment variable with a key of printable ASCII letters"
        raise ConfigError(key, variable, expected, "Export the key again.")
    return value
