"""Damage of files, as disks, copies, people and those who mean harm do it, and what comes of reading them, counted."""

import contextlib
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cod_lightning.errors import CodLightningError

ABSURD = (10**400, -(10**400), 1e308, float("inf"), float("nan"), "x", "", None, [], {}, [[]], True, -1, 2**63, 2**31)


def damage(path: Path, rng: random.Random) -> None:
    """Change a file's bytes in one of the ways in which disks, copies and people do."""
    content = bytearray(path.read_bytes())
    place = rng.randrange(max(1, len(content)))
    match rng.randrange(6):
        case 0:
            for _ in range(rng.choice((1, 1, 1, 20))):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        case 1:
            content[place : place + 512] = bytes(len(content[place : place + 512]))
        case 2:
            del content[place:]
        case 3:
            del content[place : place + rng.randrange(1, 64)]
        case 4:
            other, page = rng.randrange(len(content)) // 4096 * 4096, place // 4096 * 4096
            content[page : page + 4096] = content[other : other + 4096]
        case _:
            content[place:place] = rng.randbytes(rng.randrange(1, 64))
    path.write_bytes(content)


@contextlib.contextmanager
def refused(counts: dict[str, int], what: str) -> Iterator[None]:
    """Counts an error of ours as refused, which has one line, and any other as a traceback."""
    try:
        yield
    except CodLightningError as error:
        counts["refused"] += 1
        counts["tracebacks"] += "\n" in str(error)
    except Exception as error:
        print(f"{what}: {type(error).__name__}: {error}", file=sys.__stderr__)
        counts["tracebacks"] += 1


def absurd(path: Path, rng: random.Random) -> None:
    """Replace one value somewhere in a file of JSON, or of JSON lines."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    place = rng.randrange(len(lines))
    record: Any = json.loads(lines[place])
    holder, key = rng.choice(list(holders(record)))
    holder[key] = rng.choice(ABSURD)
    lines[place] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")


def holders(value: Any) -> Any:
    """Every container within the value with every key of it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from holders(inner)
