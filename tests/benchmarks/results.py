"""What a benchmark found, as rows for a reader and for a machine."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Table:
    """One comparison."""

    name: str
    about: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""


def told(*tables: Table) -> None:
    """One JSON object on standard output, a table a key."""
    print(json.dumps({table.name: asdict(table) for table in tables}, indent=1))


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}
