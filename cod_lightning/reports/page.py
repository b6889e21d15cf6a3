"""The page: one HTML file with its data, style and script inside, which makes no network request."""

import base64
import gzip
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cod_lightning.files import write_whole

_SCRIPTS = (
    *("dom.js", "charts.js", "lake.js", "difference.js", "overview.js", "tokens.js", "entries.js", "details.js"),
    "browser.js",
)
"""In this order they become one script."""
_ESCAPED = re.compile("[<>&\u2028\u2029\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def render(overview: dict[str, Any], lifecycles: dict[str, Any]) -> str:
    """The whole file."""
    folder = files("cod_lightning.reports").joinpath("page")
    style = folder.joinpath("page.css").read_text(encoding="utf-8")
    parts = "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}\n}})();'
    environment = Environment(
        loader=PackageLoader("cod_lightning.reports", "page"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html.j2").render(
        title=" | ".join(run["name"] for run in overview["runs"]),
        policy=f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        overview=Markup(embedded(overview)),
        lifecycles=Markup(packed(lifecycles)),
    )


def write(path: Path, overview: dict[str, Any], lifecycles: dict[str, Any]) -> int:
    """Write the file and return its size in bytes."""
    page = render(overview, lifecycles).encode("utf-8", "replace")
    write_whole(path, page)
    return len(page)


def embedded(data: object) -> str:
    """JSON with `<`, `>`, `&`, controls and marks of direction escaped: nothing in it ends the element, or acts on a terminal.

    >>> embedded({"said": "</script>"})
    '{"said":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def packed(data: object) -> str:
    """JSON, compressed, in base64: a seventh of its size, and no character that ends the element."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _digest(text: str) -> str:
    """How the Content-Security-Policy names the one script, or style, that may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
