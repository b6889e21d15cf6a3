"""Programs at random: well-formed for the most part, wrong in what they do."""

import random

from cod_lightning.envs.apps.sandbox.functions import FUNCTIONS
from cod_lightning.envs.apps.sandbox.operations import METHODS

NAMES = ("x", "y", "z", "f", "g")
FIRST = "x = [1, 2]\ny = {'a': x}\nz = 'abc'\ndef f(a):\n  return a\ng = f"
"""What gives every name a value."""
LEAVES = (
    *NAMES, "0", "1", "-1", "3", "2**40", "1e308", "1e-3", "'a'", "''", "'abcab'", "True", "None", "[]", "{}", "()", "[1, 2, 3]",
    "{'a': 1, 'b': [2]}", "mail", "float('nan')", "float('inf')",
)  # fmt: skip
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in", "is"]
CALLED = sorted({name for names in METHODS.values() for name in names} | {"sort"})
FORMATS = ("", ":>9", ":.2f", ":5d", ":%", ":s", "!s", ":,")


def expression(rng: random.Random, depth: int) -> str:
    """An expression of at most that depth."""

    def inner() -> str:
        return expression(rng, depth - 1)

    def several(most: int) -> str:
        return ", ".join(inner() for _ in range(rng.randint(0, most)))

    if depth <= 0:
        return rng.choice(LEAVES)
    forms = (
        lambda: f"({inner()} {rng.choice(OPERATORS)} {inner()})",
        lambda: f"[{inner()}, {inner()}]",
        lambda: f"{{{inner()}: {inner()}}}",
        lambda: f"({inner()}, {inner()})",
        lambda: f"{rng.choice(list(FUNCTIONS))}({several(3)})",
        lambda: f"{rng.choice(list(FUNCTIONS))}({several(2)})",
        lambda: f"({inner()}).{rng.choice(CALLED)}({several(2)})",
        lambda: f"({inner()})[{inner()}]",
        lambda: f"({inner()})[{inner()}:{inner()}:{rng.choice(('', '2', '-1', '0'))}]",
        lambda: f"[{inner()} for {rng.choice(NAMES)} in {inner()} if {inner()}]",
        lambda: f"(lambda {rng.choice(NAMES)}: {inner()})({inner()})",
        lambda: f"f'{{{rng.choice(NAMES)}{rng.choice(FORMATS)}}}'",
        lambda: f"({inner()} if {inner()} else {inner()})",
        lambda: f"{rng.choice(('not ', '-', '+'))}({inner()})",
    )
    return rng.choice(forms)()


def statement(rng: random.Random, depth: int, indent: str = "") -> str:
    """A statement of at most that depth, with its lines."""

    def inner() -> str:
        return statement(rng, depth - 1, f"{indent}  ")

    name = rng.choice(NAMES)
    if depth <= 0 or rng.random() < 0.4:
        return f"{indent}{name} = {expression(rng, 3)}\n"
    forms = (
        lambda: f"{indent}{expression(rng, 3)}\n",
        lambda: f"{indent}for {name} in {expression(rng, 2)}:\n{inner()}",
        lambda: f"{indent}try:\n{inner()}{indent}except Exception as y:\n{inner()}",
        lambda: f"{indent}def f(x, y={expression(rng, 1)}):\n{inner()}{indent}  return {expression(rng, 2)}\n",
        lambda: f"{indent}{name}[{expression(rng, 1)}] = {expression(rng, 2)}\n",
        lambda: f"{indent}{name} {rng.choice(('+=', '*=', '-='))} {expression(rng, 2)}\n",
    )
    return rng.choice(forms)()
