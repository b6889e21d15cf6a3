"""Reading the four actions: one element in the answer, with flat arguments; a strict grammar of our own, no entities.

action   = <name/> | <name> argument* </name>
argument = <point x="0.5" t="0.02"/> | <key>text</key>
"""

import re
from dataclasses import dataclass

ACTIONS = ("sample_pde_data", "run_sparse_regression", "summarize_pack_evidence", "update_scientific_context")
_ARGUMENTS = {
    "sample_pde_data": {"point"},
    "run_sparse_regression": {"dataset_id", "dictionary", "candidate_equations", "threshold"},
    "summarize_pack_evidence": {"reveal_equations"},
    "update_scientific_context": {"preferred_equation", "note", "uncertain_terms"},
}
_LONGEST = 6000
_MOST_POINTS = 64
_ROOT = re.compile(r"<([a-z_]{1,40})\s*(?:/>|>(.*)</\1\s*>)", flags=re.DOTALL | re.ASCII)
_CHILD = re.compile(
    r"""<(?:point\s+x\s*=\s*(?P<x>"[^"<>&]{0,40}"|'[^'<>&]{0,40}')\s+t\s*=\s*(?P<t>"[^"<>&]{0,40}"|'[^'<>&]{0,40}')\s*(?:/>|></point>)"""
    r"""|(?P<key>[a-z_]{1,40})>(?P<text>[^<>&]*)</(?P=key)>)""",
    flags=re.ASCII,
)
_NUMBER = re.compile(r"[+-]?(?:\d{1,6}(?:\.\d{0,18})?|\.\d{1,18})", flags=re.ASCII)


@dataclass(frozen=True, slots=True)
class PDEAction:
    """One action as it was written."""

    name: str
    arguments: dict[str, str]
    points: tuple[tuple[str, str], ...] = ()
    """x and t, unchecked."""


def command_of(answer: str) -> tuple[PDEAction | None, str]:
    """(command, "") or (None, which rule was broken).

    >>> command_of('<sample_pde_data><point x="0.5" t="0"/></sample_pde_data>')[0].points
    (('0.5', '0'),)
    >>> command_of("<summarize_pack_evidence/>")[0].arguments
    {}
    >>> command_of("<!DOCTYPE x><run_sparse_regression/>")
    (None, 'only plain elements are read: no declarations, no entities')
    """
    if len(answer) > _LONGEST:
        return None, f"the action is longer than {_LONGEST} characters"
    if "&" in answer or "<!" in answer or "<?" in answer:
        return None, "only plain elements are read: no declarations, no entities"
    root = _ROOT.fullmatch(answer.strip())
    if root is None:
        return None, "the answer is not one XML element with an end tag"
    name, body = root[1], root[2] or ""
    if name not in ACTIONS:
        return None, "there is no action of that name"
    if name == "sample_pde_data":
        body = re.sub(r"^\s*<point_grid>(.*)</point_grid>\s*$", r"\1", body, flags=re.DOTALL)
    arguments, points, at = {}, [], 0
    while at < len(body):
        if body[at].isspace():
            at += 1
            continue
        child = _CHILD.match(body, at)
        if child is None:
            return None, "the arguments are not a flat list of elements"
        key = child["key"] or "point"
        if key not in _ARGUMENTS[name]:
            return None, f"{name} has no such argument"
        if key in arguments:
            return None, f"{key} occurs twice"
        if key == "point":
            if child["x"] is None:
                return None, 'a point is written <point x="0.5" t="0.02"/>'
            points.append((child["x"][1:-1].strip(), child["t"][1:-1].strip()))
        else:
            arguments[key] = child["text"].strip()
        at = child.end()
    if len(points) > _MOST_POINTS:
        return None, f"more than {_MOST_POINTS} points"
    return PDEAction(name, arguments, tuple(points)), ""


def number_of(text: str) -> float | None:
    """A plain decimal number, else None.

    >>> number_of("0.25"), number_of("nan"), number_of("1e999")
    (0.25, None, None)
    """
    return float(text) if _NUMBER.fullmatch(text) else None
