"""Pages: a model card and a sweep's tables in Markdown, and a report, one HTML file with its data, style and script inside, which
makes no network request."""

import base64
import gzip
import hashlib
import json
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cod_lightning.evaluation.view import figure, packs_of, with_interval
from cod_lightning.markdown import escaped, fenced, visible
from cod_lightning.reports.charts import run_colour


def render(overview: dict[str, Any], lifecycles: dict[str, Any]) -> str:
    """The whole file: an overview that stands in it as it is, and lifecycles for its script."""
    folder = files("cod_lightning.reports").joinpath("page")
    style, script = (folder.joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    names = [visible(run["name"]) for run in overview["runs"]]
    data = json.dumps({"runs": names, "files": overview["files"], **lifecycles}, allow_nan=False, separators=(",", ":"))
    return rendered(
        "page.html.j2",
        **overview,
        policy=f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        # a seventh of its size, and no character that ends the element
        data=base64.b64encode(gzip.compress(data.encode(), mtime=0)).decode(),
    )


def rendered(template: str, **values: Any) -> str:
    """A file of `page/`, filled in. HTML escapes whatever is foreign; in Markdown it passes the filters `escaped` or `fenced`."""
    environment = Environment(
        loader=PackageLoader("cod_lightning.reports", "page"),
        autoescape=template.endswith(".html.j2"),
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str and template.endswith(".html.j2") else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "escaped": lambda value: escaped(str(value)),
        "fenced": fenced,
        "cell": with_interval,
        "figure": figure,
        "packs_of": packs_of,
        "run_colour": run_colour,
    }
    return environment.get_template(template).render(values)


def _digest(text: str) -> str:
    """How the Content-Security-Policy names the one script, or style, that may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
