"""Verdicts on the rules of a contract, and what breaks one."""

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_EXAMPLES = 3
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Verdict:
    """One rule of the contract, and what was found."""

    rule: str
    broken: tuple[str, ...] = ()
    """The first few violations, one sentence each."""
    remark: str = ""
    """What is no violation and worth knowing."""
    look: bool = False
    """Whether the remark is one for a person to judge: it may be a mistake, or meant so."""


Broken = Iterator[str]


class Violation(Exception):
    """A sentence about a broken rule, after which the rule's check cannot go on."""


def verdict_on(rule: str, look: Callable[[], Broken]) -> Verdict:
    """What is found, at most three different examples; an exception is one."""
    found: list[str] = []
    try:
        for one in look():
            found += [one] if one not in found else []
            if len(found) == MOST_EXAMPLES:
                break
    except Violation as error:
        found.append(str(error))
    except (Exception, SystemExit) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).parent != _HERE]
        at = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        found.append(f"raised {type(error).__name__}: {str(error)[:200]}{at}")
    return Verdict(rule, tuple(found))
