"""What a benchmark found, as rows."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch


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


def write(file: Path, command: str, *tables: Table) -> None:
    """The tables as JSON."""
    cores = (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    )
    file.write_text(
        json.dumps({"machine": cores, "command": command, "tables": [asdict(t) for t in tables]}, indent=1) + "\n"
    )
