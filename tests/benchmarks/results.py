"""What a benchmark found, as rows for a reader and for a machine."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from cod_lightning import markdown


@dataclass(frozen=True, kw_only=True)
class Table:
    """One comparison."""

    name: str
    about: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""


def report(*tables: Table) -> None:
    """One JSON object on standard output, a table a key."""
    print(json.dumps({table.name: asdict(table) for table in tables}, indent=1))


def tables_of(printed: str) -> dict[str, dict[str, Any]]:
    """What `report` printed, whatever else was printed before it."""
    return json.loads(printed[printed.index("{\n") :])


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def write(file: Path, title: str, command: str, *tables: Table) -> None:
    """The tables as JSON, and beside it as Markdown."""
    cores = (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    )
    file.write_text(
        json.dumps({"machine": cores, "command": command, "tables": [asdict(t) for t in tables]}, indent=1) + "\n"
    )
    parts = [f"# {title}", f"`{command}` on {cores}."]
    for table in tables:
        parts += [f"## {table.name.capitalize()}", table.about, table.note, _markdown(table.rows) if table.rows else ""]
    file.with_suffix(".md").write_text("\n\n".join(part for part in parts if part) + "\n")


def _markdown(rows: Sequence[dict[str, Any]]) -> str:
    """A table with a column for every key that occurs."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    head = [name.replace("_", " ") for name in columns]
    return markdown.table(head, ([_cell(row.get(name, "")) for name in columns] for row in rows))


def _cell(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"median", "least", "most"}:
        return f"{_cell(value['median'])} ({_cell(value['least'])} to {_cell(value['most'])})"
    if isinstance(value, dict):
        return ", ".join(f"{name.removesuffix('_s')} {_cell(one)}" for name, one in value.items())
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
