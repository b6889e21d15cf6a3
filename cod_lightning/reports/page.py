"""The page: one HTML file with its data, style and script inside, which makes no network request."""

import base64
import gzip
import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from cod_lightning.files import write_whole
from cod_lightning.markdown import visible
from cod_lightning.reports.templates import rendered


def render(overview: dict[str, Any], lifecycles: dict[str, Any]) -> str:
    """The whole file: an overview that stands in it as it is, and lifecycles for its script."""
    folder = files("cod_lightning.reports").joinpath("page")
    style, script = (folder.joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    names = [visible(run["name"]) for run in overview["runs"]]
    return rendered(
        "page.html.j2",
        **overview,
        policy=f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        data=packed({"runs": names, "files": overview["files"], **lifecycles}),
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
