"""Texts of environments as `play` shows them: lines that are JSON become tables and lists, all others stay as they are."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

_WIDEST = 28
"""Columns of the screen that a cell asks for; what is longer is wrapped."""
_SHORT = 20
"""Letters up to which items of a list stand on one line."""


def panel(title: str, inside: RenderableType, colour: str = "dim") -> Panel:
    """Foreign text, or what was made of it, in a box."""
    inside = Text(inside.expandtabs(1)) if isinstance(inside, str) else inside
    return Panel(inside, title=title, title_align="left", border_style=colour)


def readable(text: str, console: Console) -> RenderableType:
    """Each line as text, or, where it is JSON, as a table of records, a list, or names with their values."""
    parts: list[RenderableType] = []
    for line in text.splitlines():
        try:
            found = json.loads(line) if line[:1] in ("{", "[") else None
        except (ValueError, RecursionError):
            found = None
        parts.append((found and _laid_out(found, console.width)) or Text(line.expandtabs(1)))
    return Group(*parts)


def records(rows: Sequence[Mapping[str, Any]], width: int) -> RenderableType:
    """A table with a column for each name; below one another where the screen is too narrow for that."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    names.sort(key=lambda name: name != "id")
    cells = [[_cell(row.get(name, "")) for name in names] for row in rows]
    asked = sum(min(_WIDEST, max(map(len, column))) + 2 for column in zip(names, *cells, strict=True))
    if asked > width - 4:
        return _pairs([(row[0], _rest(names[1:], row[1:])) for row in cells])
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(Text(name))
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _rest(names: Sequence[str], cells: Sequence[str]) -> Text:
    """`folder inbox  subject Budget  ...`, in lines; nothing of what is empty."""
    pairs = zip(names, cells, strict=True)
    return Text("  ").join(Text.assemble((f"{name} ", "dim"), cell) for name, cell in pairs if cell)


def _laid_out(found: Any, width: int) -> RenderableType | None:
    """What JSON holds; None where it is best left as it is."""
    match found:
        case {"items": list(items), "page": int(page), "pages": int(pages)}:
            rows = _laid_out(items, width) if items else Text("nothing")
            return rows and Group(rows, Text(f"page {page} of {pages}", "dim"))
        case dict():
            return _pairs([(_cell(name), Text(_cell(value))) for name, value in found.items()])
        case [dict(), *_] if all(isinstance(one, dict) for one in found):
            return records(found, width)
        case [str(), *_] if all(isinstance(one, str) for one in found):
            short = all(len(one) <= _SHORT for one in found)
            return Text(", ".join(map(_cell, found))) if short else _pairs([("-", Text(_cell(one))) for one in found])
    return None


def _pairs(pairs: Sequence[tuple[str, Text]]) -> Table:
    """Names with their values, which are wrapped beside them."""
    grid = Table.grid(padding=(0, 1))
    for name, value in pairs:
        grid.add_row(Text(name, "bold"), value)
    return grid


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.expandtabs(1)
