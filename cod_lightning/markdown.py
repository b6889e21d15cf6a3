"""Tables in Markdown, and texts of models and worlds inside it: they are shown, and never act as markup, nor on a terminal.

Holds for CommonMark (GitHub, Hugging Face) and for Python-Markdown, which TensorBoard uses. Stdlib only.
"""

import re
from collections.abc import Iterable, Sequence

_BACKSLASHED = r"\`*_{}[]#!|"
_ENTITIES = {one: f"&#{ord(one)};" for one in "<>&~$@"}
_ESCAPES = str.maketrans({one: f"\\{one}" for one in _BACKSLASHED} | _ENTITIES)
_LINE_END = re.compile("\r\n?|[\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_UNSHOWN = re.compile(
    "[\x80-\x9f\u061c\u115f\u1160\u180e\u200e\u200f\u202a-\u202e\u2061-\u2064\u2066-\u206f\u3164\ud800-\udfff\ue000-\uf8ff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
"""C1 controls, marks that change the direction of writing, lone surrogates, and what a model reads but no reader sees: tags,
further selectors, private letters and blank ones."""
_WWW = re.compile(r"(www)\.", re.IGNORECASE)
"""With which GitHub begins a link, too."""
_BACKTICKS = re.compile("`+")


def escaped(text: str) -> str:
    """The text on one line, to stand behind other words, in a heading or in the cell of a table.

    >>> escaped("**hole** | <b>")
    '\\\\*\\\\*hole\\\\*\\\\* \\\\| &#60;b&#62;'
    """
    text = " ".join(visible(text).split()).translate(_ESCAPES).replace("://", "&#58;//")
    return _WWW.sub(r"\1&#46;", text)


def fenced(text: str, language: str = "text") -> str:
    """The text as a code block, whose fence is longer than any run of backticks in it.

    >>> print(fenced("a"))
    ```text
    a
    ```
    """
    text = visible(text).rstrip("\n")
    fence = "`" * max([3, *(1 + len(run) for run in _BACKTICKS.findall(text))])
    return f"{fence}{language}\n{text}\n{fence}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of these cells, as they are.

    >>> print(table(["a", "b"], [["1", "2"]]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *lines])


def visible(text: str) -> str:
    """Line ends as newlines, other control characters as pictures of them, and nothing that a terminal or UTF-8 trips over.

    >>> visible("up\\r\\nnow\\x1b[0m")
    'up\\nnow␛[0m'
    >>> visible("\\x9b2J \\u202eevil")
    '�2J �evil'
    """
    if text.isascii() and text.isprintable():
        return text
    lines = _LINE_END.sub("\n", text)
    shown = _CONTROL.sub(lambda found: "␡" if found[0] == "\x7f" else chr(0x2400 + ord(found[0])), lines)
    return _UNSHOWN.sub("\ufffd", shown)
