"""What the reference players write down and read back: measurements as (u, y), an equation, and how sure it is."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cod_lightning.envs.pde.library import Equation, parse_equation, written
from cod_lightning.envs.pde.regression import SATURATED

Pairs = tuple[tuple[float, float], ...]
_PAIR = re.compile(r"\bu=(-?\d\.\d{4})\s+y=(-?\d\.\d{4})(?!\d)", flags=re.ASCII)
_EQUATION = re.compile(r"Preferred equation \((confirmed|likely|open)\): (f\(u\) = [^\n]{1,400})", flags=re.ASCII)
_FINAL = re.compile(r"You finalised (f\(u\) = .{1,400}?); its largest error", flags=re.ASCII)
_MOST_PAIRS = 64


@dataclass(frozen=True)
class Note:
    """A context of PDE Discovery."""

    pairs: Pairs = ()
    """Measured (u, f(u)), oldest first; cut ones left out."""
    equation: Equation = ()
    trust: str = "open"
    """confirmed (a feedback said so), likely, or open."""


def pairs_in(text: str) -> Pairs:
    """All different measurements in a text, in order.

    >>> pairs_in("x=0.5 t=0.01 u=1.2000 y=-0.5000 error=0.1, u=1.2000 y=-0.5000, u=2.0000 y=-3.0001")
    ((1.2, -0.5),)
    """
    found = ((float(u), float(y)) for u, y in _PAIR.findall(text))
    return tuple(dict.fromkeys(pair for pair in found if abs(pair[1]) < SATURATED))


def read_note(text: str) -> Note:
    """A note out of a context, or out of a system text that holds one."""
    matches = _EQUATION.findall(text)
    trust, shown = matches[-1] if matches else ("open", "")
    return Note(pairs_in(text), parse_equation(shown)[0], trust)


def write_note(note: Note) -> str:
    """Two bullets at most; the latest measurements where there are too many."""
    lines = []
    if note.equation:
        lines.append(f"- Preferred equation ({note.trust}): {written(note.equation)}")
    if note.pairs:
        shown = ", ".join(f"u={u:.4f} y={y:.4f}" for u, y in note.pairs[-_MOST_PAIRS:])
        lines.append(f"- Measured so far, y being f(u): {shown}")
    return "\n".join(lines) or "- Nothing is known yet."


def finalised_in(texts: Sequence[str]) -> tuple[Equation, str]:
    """(equation of the last feedback, confirmed / refuted / open)."""
    for text in reversed(texts):
        if match := _FINAL.search(text):
            verdict = "confirmed" if "active terms are right" in text else "open"
            return parse_equation(match[1])[0], "refuted" if "active terms are not right" in text else verdict
    return (), "open"
