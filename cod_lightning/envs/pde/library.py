"""The fifteen basis functions a reaction may be made of, and how an equation is read and written.

An equation is a tuple of (term, coefficient), in the order of the library; nothing that a policy writes is evaluated.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Equation = tuple[tuple[str, float], ...]
"""Terms with their coefficients, no term twice."""

_PAIRS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "u": (lambda u: u, np.ones_like),
    "u**2": (lambda u: u**2, lambda u: 2 * u),
    "u**3": (lambda u: u**3, lambda u: 3 * u**2),
    "u**4": (lambda u: u**4, lambda u: 4 * u**3),
    "u**5": (lambda u: u**5, lambda u: 5 * u**4),
    "u**7": (lambda u: u**7, lambda u: 7 * u**6),
    "sin(u)": (np.sin, np.cos),
    "sin(2*u)": (lambda u: np.sin(2 * u), lambda u: 2 * np.cos(2 * u)),
    "exp(u)-1": (np.expm1, np.exp),
    "log(1+u**2)": (lambda u: np.log1p(u**2), lambda u: 2 * u / (1 + u**2)),
    "tanh(u)": (np.tanh, lambda u: 1 - np.tanh(u) ** 2),
    "u/(1+u**2)": (lambda u: u / (1 + u**2), lambda u: (1 - u**2) / (1 + u**2) ** 2),
    "u**2/(1+u**2)": (lambda u: u**2 / (1 + u**2), lambda u: 2 * u / (1 + u**2) ** 2),
    "u**4/(1+u**4)": (lambda u: u**4 / (1 + u**4), lambda u: 4 * u**3 / (1 + u**4) ** 2),
    "u/(1+u+u**2)": (lambda u: u / (1 + u + u**2), lambda u: (1 - u**2) / (1 + u + u**2) ** 2),
}
TERMS = tuple(_PAIRS)
"""Names of the basis functions; part of the protocol."""

_LONGEST_EQUATION = 400
_SUMMAND = re.compile(
    r"(?P<sign>[+-]{0,2})(?:(?P<number>\d{1,6}(?:\.\d{0,12})?|\.\d{1,12})\*)?(?P<term>"
    + "|".join(re.escape(term) for term in sorted(TERMS, key=len, reverse=True))
    + r")(?=[+-]|$)",
    flags=re.ASCII,
)


def columns(terms: Sequence[str], u: Array) -> Array:
    """Values of the terms at u: [*u.shape, len(terms)]."""
    return np.stack([_PAIRS[term][0](u) for term in terms], axis=-1)


def slopes(terms: Sequence[str], u: Array) -> Array:
    """Derivatives of the terms at u: [*u.shape, len(terms)]."""
    return np.stack([_PAIRS[term][1](u) for term in terms], axis=-1)


def reaction(equation: Equation, u: Array) -> Array:
    """f(u), elementwise.

    >>> float(reaction((("u", 1.0), ("u**3", -0.5)), np.array(2.0)))
    -2.0
    """
    total = np.zeros_like(u)
    for term, coefficient in equation:
        total += coefficient * _PAIRS[term][0](u)
    return total


def equation_of(coefficients: Mapping[str, float]) -> Equation:
    """Rounded to three digits, in the library's order; zeros are left out.

    >>> equation_of({"u**3": -1.00049, "u": 2.0, "tanh(u)": 0.0001})
    (('u', 2.0), ('u**3', -1.0))
    """
    rounded = ((term, round(coefficients[term], 3)) for term in TERMS if term in coefficients)
    return tuple((term, value) for term, value in rounded if value)


def support(equation: Equation) -> tuple[str, ...]:
    """The active terms."""
    return tuple(term for term, _ in equation)


def written(equation: Equation) -> str:
    """The equation as it is shown, and as an answer may write it.

    >>> written((("u", 1.5), ("exp(u)-1", -0.25)))
    'f(u) = 1.5*u - 0.25*exp(u)-1'
    """
    parts = [f"{'-' if value < 0 else '+'} {abs(value):.10g}*{term}" for term, value in equation]
    return "f(u) = " + " ".join(parts).removeprefix("+ ").replace("- ", "-", 1 if parts and parts[0][0] == "-" else 0)


def parse_equation(text: str) -> tuple[Equation, str]:
    """(equation, "") or ((), what is wrong). Sums of number*term; blanks do not matter, equal terms are added.

    >>> parse_equation("f(u) = 2*u - 0.5 * exp(u)-1 + u")
    ((('u', 3.0), ('exp(u)-1', -0.5)), '')
    >>> parse_equation("c1*u")[1]
    'an equation is a sum of number*term with terms of the library, and nothing else'
    """
    complaint = "an equation is a sum of number*term with terms of the library, and nothing else"
    if len(text) > _LONGEST_EQUATION:
        return (), f"an equation has at most {_LONGEST_EQUATION} characters"
    packed, at = "".join(text.split()).removeprefix("f(u)="), 0
    found: dict[str, float] = {}
    while at < len(packed):
        match = _SUMMAND.match(packed, at)
        if match is None or (at > 0 and not match["sign"]):
            return (), complaint
        value = float(match["number"] or 1) * (-1) ** match["sign"].count("-")
        found[match["term"]] = found.get(match["term"], 0.0) + value
        at = match.end()
    equation = equation_of(found)
    return (equation, "") if equation else ((), complaint)


def parse_terms(text: str) -> tuple[tuple[str, ...], str]:
    """(different terms in the library's order, "") or ((), what is wrong); separated by semicolons, commas or new lines."""
    names = {"".join(part.split()) for part in re.split(r"[;,\n]", text)} - {""}
    if len(text) > 1000 or not names or not names <= set(TERMS):
        return (), "name terms of the library, separated by semicolons"
    return tuple(term for term in TERMS if term in names), ""


def loss(equation: Equation, truth: Equation) -> float:
    """Sum of coefficient errors over the sum of true magnitudes, and 1 for every term too many.

    >>> loss((("u", 1.0), ("u**2", 0.5)), (("u", 2.0),))
    1.75
    """
    proposed, true = dict(equation), dict(truth)
    error = sum(abs(proposed.get(term, 0.0) - true.get(term, 0.0)) for term in TERMS)
    return error / sum(map(abs, true.values())) + max(0, len(proposed) - len(true))


SHORT = dict(
    zip(["u", "u2", "u3", "u4", "u5", "u7", "S1", "S2", "E", "L", "T", "Q", "H2", "H4", "K"], TERMS, strict=True)
)
"""Terms of the library by the words that name them in the lists below."""
Template = tuple[tuple[str, int], ...]
"""Terms with their signs."""


def template_of(word: str) -> Template:
    """A template from its short form.

    >>> template_of("-S2-u3")
    (('sin(2*u)', -1), ('u**3', -1))
    """
    spaced = word.replace("-", " -").replace("+", " +").split()
    return tuple((SHORT[part.lstrip("+-")], -1 if part.startswith("-") else 1) for part in spaced)


_TRAIN = """
-u -u3 -S1 -T -H2 u-u2 u-u3 u-u5 u2-u4 S1-u3 E-u2 L-u2 T-u2 T-u3 Q-u2 Q-u3 H2-u H2-u3 u3-u5 T-u H4-u K-u S2-u2 S2-u3 S2-u5
S1-u4 T-u4 Q-u4 K-u2 K-u3 -S2-u2 -S2-u3 -S2-u5 -S1-u4 -S1-u3 Q-u H2-u2 u3-u7 u2-u5 H2-u5
"""
_BENCHMARK = """
u-u4 u2-u3 S1-u5 E-u3 L-u4 T-u5 Q-u5 H2-u4 u-u7 S1-S2 H2-H4 E-u5 S1-E u5-u7 Q-T u3-u4 H2-L u+u2-u3 u+T-u3 u-u3-u5 S1-S2-u3
u+u3-u7 H2+H4-u5 E+T-u7 S2+H2-u7
"""

FAMILIES: dict[str, tuple[Template, ...]] = {
    "physical_full_train": tuple(map(template_of, _TRAIN.split())),
    "physical_full_eval_4000": tuple(map(template_of, _BENCHMARK.split())),
}


def eligible(family: str, min_terms: int, max_terms: int) -> tuple[Template, ...]:
    """The family's templates of these sizes, in its order."""
    return tuple(template for template in FAMILIES[family] if min_terms <= len(template) <= max_terms)
