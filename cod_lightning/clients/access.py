"""The address of an endpoint and its key. The key is read where it is needed and never shown."""

import os
from urllib.parse import urlsplit

from cod_lightning.errors import ConfigError


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
