"""Where an endpoint is, and by which key one may ask it. The key is read where it is needed and never shown."""

import os
from urllib.parse import urlsplit

from cod_lightning.errors import ConfigError

URL_VARIABLE = "OPENAI_BASE_URL"


def url_of(given: str | None) -> str:
    """The address: the given one, else the environment's. Raises `ConfigError` if it is none, or holds a secret."""
    url = given or os.environ.get(URL_VARIABLE, "")
    parts = urlsplit(url)
    secret = parts.username or parts.password or parts.query
    if parts.scheme not in ("http", "https") or not parts.hostname or secret:
        shown = "one with credentials or a query" if secret else url or "empty"
        expected = "an http or https address without credentials, such as http://localhost:8000/v1"
        raise ConfigError("data.engine.base_url", shown, expected, f"Set it, or export {URL_VARIABLE}.")
    return url


def key_of(variable: str) -> str:
    """The key in that environment variable; empty for none. Raises `ConfigError` if no header can hold it."""
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        expected = "the name of an environment variable with a key of printable ASCII letters"
        raise ConfigError("data.engine.api_key_variable", variable, expected, "Export the key again.")
    return key
