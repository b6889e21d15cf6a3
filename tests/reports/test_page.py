"""The page: complete in itself, and closed to whatever a text may try."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

from cod_lightning.reports.page import render
from cod_lightning.reports.report import report_data
from tests.records import group
from tests.reports.made_runs import saying, write_run

ODD = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


class Elements(HTMLParser):
    """Start tags with their attributes, and the texts of script and style elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style") and data.strip():
            self.texts.append((self.tags[-1][1].get("type") or self.tags[-1][0], data))


def _page(folder) -> str:
    return render(*report_data([write_run(folder, [saying(group("a", [[True], [False]]), ODD)])]))


def test_hostile_text_makes_no_element(tmp_path):
    odd = tmp_path / "<img src=x onerror=alert(1)>"
    elements = Elements(_page(odd))
    assert [tag for tag, _ in elements.tags].count("script") == 2
    assert "img" not in [tag for tag, _ in elements.tags]
    data = json.loads(gzip.decompress(base64.b64decode(dict(elements.texts)["text/plain"])))
    assert ODD in data["strings"]
    assert data["runs"] == [odd.name]


def test_nothing_is_loaded_from_anywhere_and_the_policy_allows_this_script_and_style_and_nothing_else(tmp_path):
    elements = Elements(_page(tmp_path))
    assert not [attrs for _, attrs in elements.tags if {"src", "srcset", "data", "action"} & attrs.keys()]
    assert not [tag for tag, _ in elements.tags if tag in ("link", "iframe", "object", "embed", "base")]
    style = next(text for kind, text in elements.texts if kind == "style")
    assert not re.search(r"url\(|@import|@font-face", style)
    policy = next(a["content"] for _, a in elements.tags if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in (policy or "").split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for kind in ("script", "style"):
        text = next(text for found, text in elements.texts if found == kind)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"


def test_the_script_makes_text_nodes_only():
    folder = files("cod_lightning.reports").joinpath("page")
    script = "".join(one.read_text() for one in folder.iterdir() if one.name.endswith(".js"))
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|srcdoc"
    forbidden += r"|fetch\(|XMLHttp|import\("
    assert not re.search(forbidden, script)
    assert "</script" not in script
