"""The page: one HTML file with its data, style and script inside, which makes no network request."""

import base64
import gzip
import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cod_lightning.files import write_whole

_SCRIPTS = ("dom", "charts", "lake", "difference", "overview", "tokens", "entries", "details", "browser")
"""In this order they become one script."""


def render(overview: dict[str, Any], lifecycles: dict[str, Any]) -> str:
    """The whole file."""
    folder = files("cod_lightning.reports").joinpath("page")
    style = folder.joinpath("page.css").read_text(encoding="utf-8")
    parts = "\n".join(folder.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}\n}})();'
    environment = Environment(
        loader=PackageLoader("cod_lightning.reports", "page"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html.j2").render(
        title=" | ".join(run["name"] for run in overview["runs"]),
        policy=f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        data=packed({"overview": overview, "lifecycles": lifecycles}),
    )


def write(path: Path, overview: dict[str, Any], lifecycles: dict[str, Any]) -> int:
    """Write the file and return its size in bytes."""
    page = render(overview, lifecycles).encode("utf-8", "replace")
    write_whole(path, page)
    return len(page)


def packed(data: object) -> str:
    """JSON, compressed, in base64: a seventh of its size, and no character that ends the element."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _digest(text: str) -> str:
    """How the Content-Security-Policy names the one script, or style, that may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
