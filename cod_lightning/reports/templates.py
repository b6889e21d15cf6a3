"""The one writer of pages: a report in HTML, a model card and a sweep's tables in Markdown."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from cod_lightning.evaluation.schema import Figure
from cod_lightning.evaluation.view import with_interval
from cod_lightning.markdown import escaped, fenced, visible


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
        "shown": shown,
    }
    return environment.get_template(template).render(values)


def figure(of: Figure | None, form: str = ".3f") -> str:
    """A mean with its interval, a dash where it is missing."""
    return "-" if of is None else with_interval(of["mean"], of["ci95"], form)


def shown(value: float | None, form: str = ".2f") -> str:
    """A number with a real minus sign, a dash where it is missing.

    >>> shown(-0.5), shown(0.25, "+.2f"), shown(None)
    ('−0.50', '+0.25', '–')
    """
    return "–" if value is None else f"{value:{form}}".replace("-", "−")
