"""A frozen lake and the path of an episode across it, from the task's spec and the responses."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cod_lightning.envs.code_labels import NUMBERS, CodeLabels
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
    labels = _labels(spec.get("labels"))
    return {"rows": list(rows), "mapping": list(mapping), "noun": labels.noun, "names": list(labels.names)}


def path_of(lake: Mapping[str, Any], responses: Sequence[str]) -> list[Cell]:
    """The cells stood on, the start included, up to the first hole or goal; an answer that cannot be read moves nowhere."""
    rows, mapping = lake["rows"], lake["mapping"]
    labels = CodeLabels(lake["noun"], tuple(lake["names"]))
    path = [next((r, row.index("S")) for r, row in enumerate(rows) if "S" in row)]
    for response in responses:
        code, _ = labels.code_of(response)
        if code:
            path.append(neighbour(path[-1], mapping[code - 1], len(rows)))
        if rows[path[-1][0]][path[-1][1]] in "GH":
            break
    return path


def _labels(found: object) -> CodeLabels:
    """The task's own, if they are such as can be read back; else the usual ones."""
    if isinstance(found, Mapping):
        noun, names = found.get("noun"), _texts(found.get("names"))
        if isinstance(noun, str) and noun.isalpha() and len(names) == len(NUMBERS):
            return CodeLabels(noun, names)
    return CodeLabels("Direction")


def _texts(found: object) -> tuple[str, ...]:
    listed = found if isinstance(found, list | tuple) else ()
    return tuple(listed) if all(isinstance(one, str) for one in listed) else ()
