"""A frozen lake and the path of an episode across it, from the task's spec and the responses."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cod_lightning.envs.answers import code_of
from cod_lightning.envs.facts import NUMBERS
from cod_lightning.envs.frozen_lake.lake import STEPS, Cell, neighbour

_LARGEST = 32


def lake_of(spec: object) -> dict[str, Any] | None:
    """Rows, mapping and names of a lake's task, or None for a task of any other world."""
    if not isinstance(spec, Mapping):
        return None
    rows, mapping = _texts(spec.get("rows")), _texts(spec.get("mapping"))
    square = 1 < len(rows) <= _LARGEST and all(len(row) == len(rows) for row in rows)
    if not square or not re.fullmatch("[SFHG]+", letters := "".join(rows)):
        return None
    if letters.count("S") != 1 or len(mapping) != 4 or not set(mapping) <= STEPS.keys():
        return None
    return {"rows": list(rows), "mapping": list(mapping), "noun": "Direction", "names": list(NUMBERS)}


def path_of(lake: Mapping[str, Any], responses: Sequence[str]) -> list[Cell]:
    """The cells stood on, the start included, up to the first hole or goal; an answer that cannot be read moves nowhere."""
    rows, mapping = lake["rows"], lake["mapping"]
    path = [next((r, row.index("S")) for r, row in enumerate(rows) if "S" in row)]
    for response in responses:
        code, _ = code_of(response, "Direction", 4)
        if code:
            path.append(neighbour(path[-1], mapping[code - 1], len(rows)))
        if rows[path[-1][0]][path[-1][1]] in "GH":
            break
    return path


def _texts(found: object) -> tuple[str, ...]:
    listed = found if isinstance(found, list | tuple) else ()
    return tuple(listed) if all(isinstance(one, str) for one in listed) else ()
