"""Foreign text inside Markdown."""

import re
from html import unescape

import markdown
from markdown_it import MarkdownIt

from cod_lightning.markdown import escaped, fenced, visible
from tests.cases import each

HOSTILE = [
    "**bold** _it_ `code` ~~gone~~",
    "[a](http://x.y) ![b](c) <b>bold</b> <script>alert(1)</script>",
    "www.x.y and WWW.x.y",
    "# title\n- item\n| a | b |\n|---|---|",
    "\\*not\\* &lt; &#42; $x$ @someone",
    "``` \n~~~~ `````\n````",
    "{% raw %} {{ x }} \x00\x1b",
]


def by_commonmark(text: str) -> str:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)


def by_tensorboard(text: str) -> str:
    return markdown.markdown(text, extensions=["tables", "fenced_code"])


@each("render", [by_commonmark, by_tensorboard])
@each("text", HOSTILE)
def test_escaped_text_is_shown_as_it_is(render, text) -> None:
    html = render(f"said: {escaped(text)}").strip()
    assert html.startswith("<p>said: ")
    assert html.count("<") == 2
    shown = unescape(html.removeprefix("<p>said: ").removesuffix("</p>"))
    pictures = text.replace("\x00", "␀").replace("\x1b", "␛")
    assert shown == " ".join(pictures.split())


@each("text", ["http://a.b", "www.a.b", "see WWW.a.b", "me@a.b"])
def test_no_address_is_spelled_as_github_makes_links_of_it(text) -> None:
    assert not re.search(r"://|www\.|@", escaped(text), re.IGNORECASE)


@each("render", [by_commonmark, by_tensorboard])
@each("text", HOSTILE)
def test_escaped_text_stays_in_its_cell(render, text) -> None:
    html = render(f"| a | b |\n| --- | --- |\n| x | {escaped(text)} |")
    assert html.count("<td") == 2
    assert "<b>" not in html
    assert "<strong>" not in html


@each("render", [by_commonmark, by_tensorboard])
@each("text", HOSTILE)
def test_fenced_text_is_one_block_of_code(render, text) -> None:
    html = render(f"before\n\n{fenced(text)}\n\nafter")
    assert html.count("<pre>") == html.count("</pre>") == 1
    assert html.index("</pre>") < html.index("after")
    inside = unescape(html.partition('text">')[2].partition("</code>")[0])
    assert inside.rstrip("\n") == text.replace("\x00", "␀").replace("\x1b", "␛").rstrip("\n")


@each("letter", ["\U000e0061", "\U000e0100", "\ue000", "\U0010fffd", "\u2063", "\u3164", "\u206a"])
def test_a_letter_that_only_a_model_reads_is_shown_as_one_that_is_not(letter):
    assert visible(f"red{letter}blue") == "red\ufffdblue"


@each("text", ["naïve Straße", "日本語", "👩\u200d💻", "⠋ 42 %", "✔ नमस्ते"])
def test_honest_letters_stay(text):
    assert visible(text) == text
