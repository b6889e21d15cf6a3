"""A safe interpreter of scalar formulas, for worlds whose actions or answers are formulas.

The text is cut into tokens of a closed list first, its length and brackets are limited before Python's parser sees it, and the
tree is turned into closures over a whitelist of nodes. Nothing is ever executed by Python itself, all arithmetic is done in
floats, and every value on the way must be finite.
"""

import ast
import itertools
import math
import operator
import re
import string
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from cod_lightning.envs.answers import quoted

MOST_LETTERS = 1000
MOST_TOKENS = 500
MOST_NESTED = 64
"""Levels of brackets, before parsing; the tree may have twice as many."""

Values = Mapping[str, float]
Compute = Callable[[Values], float]


class ExpressionError(ValueError):
    """A formula that cannot be read, or a value that cannot be computed; the message is short and fit to be shown."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A formula that has been read."""

    text: str
    """Its tokens, with spaces only where they are needed: never a policy's raw text, and never longer."""
    _run: Compute = field(repr=False, compare=False)

    def evaluate(self, values: Values) -> float:
        """The value; raises `ExpressionError` if it is no finite number.

        >>> compile_expression("clip(k*(1 - x), -1, 1)", ["x", "k"]).evaluate({"x": 0.5, "k": 0.5})
        0.25
        """
        try:
            value = self._run(values)
        except RecursionError:
            raise ExpressionError("the formula is nested too deeply") from None
        if isinstance(value, bool):
            raise ExpressionError("the value is true or false; expected a number")
        return float(_finite(value))


def compile_expression(text: str, names: Collection[str]) -> Expression:
    """Read a formula over the given variables, in Python's notation; raises `ExpressionError`, whatever the text is.

    There are numbers, names, + - * / **, comparisons, and/or/not, `a if c else b`, and the functions in `FUNCTIONS`.
    """
    tokens = _tokens(text, frozenset(names))
    _check_brackets(tokens)
    shown = " ".join(tokens)
    try:
        tree = ast.parse(shown, mode="eval")
        run = _run_of(tree.body, frozenset(names), 1)
    except ExpressionError:
        raise
    except SyntaxError as error:
        where = shown[max(0, (error.offset or 1) - 1) :]
        raise ExpressionError(f"the formula is incomplete or out of order near {quoted(where, 20)}") from None
    except (ValueError, RecursionError, MemoryError):
        raise ExpressionError("the formula cannot be read") from None
    return Expression(_joined(tokens), run)


# ---------------------------------------------------------------------- before parsing

_TOKEN = re.compile(
    r"(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])|(?P<name>[A-Za-z_]\w*)|\*\*|<=|>=|==|!=|[-+*/()<>,]",
    re.ASCII,
)
_SPACE = re.compile(r"\s*", re.ASCII)
_WORDLY = frozenset(string.ascii_letters + string.digits + "_.")
_KEYWORDS = frozenset({"if", "else", "and", "or", "not"})


def _tokens(text: str, names: frozenset[str]) -> list[str]:
    if len(text) > MOST_LETTERS:
        raise ExpressionError(f"the formula has more than {MOST_LETTERS} letters")
    allowed = names | _KEYWORDS | FUNCTIONS.keys()
    tokens: list[str] = []
    place = _end_of_space(text, 0)
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ExpressionError(f"{quoted(text[place:], 12)} is not part of the language")
        if match["name"] and match["name"] not in allowed:
            raise ExpressionError(f"the name {quoted(match['name'], 30)} is not known")
        tokens.append(match[0])
        place = _end_of_space(text, match.end())
    if not tokens:
        raise ExpressionError("the formula is empty")
    if len(tokens) > MOST_TOKENS:
        raise ExpressionError(f"the formula has {len(tokens)} parts; at most {MOST_TOKENS} are allowed")
    return tokens


def _end_of_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else place


def _check_brackets(tokens: list[str]) -> None:
    """Raise where they do not match, or are more than Python's parser takes in every version."""
    brackets = 0
    for token in tokens:
        brackets += (token == "(") - (token == ")")
        if brackets > MOST_NESTED:
            raise ExpressionError(f"the formula is nested deeper than {MOST_NESTED} levels")
        if brackets < 0:
            raise ExpressionError("a bracket is closed that was not opened")
    if brackets:
        raise ExpressionError("a bracket is opened that is not closed")


def _joined(tokens: list[str]) -> str:
    """The formula again, with a space between words only.

    >>> _joined(["1", "if", "x", "<", "2", "else", "-", "x"])
    '1 if x<2 else-x'
    """
    text = tokens[0]
    for before, token in itertools.pairwise(tokens):
        spaced = before[-1] in _WORDLY and token[0] in _WORDLY
        text += f" {token}" if spaced else token
    return text


# ---------------------------------------------------------------------- what formulas may do


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ExpressionError("a value is infinite or not a number")
    return value


def _divide(left: float, right: float) -> float:
    if right == 0:
        raise ExpressionError("division by zero")
    return left / right


def _power(left: float, right: float) -> float:
    try:
        return math.pow(left, right)
    except ValueError:
        raise ExpressionError("a power has no real value") from None
    except OverflowError:
        raise ExpressionError("a value is infinite or not a number") from None


def _clip(value: float, low: float, high: float) -> float:
    if low > high:
        raise ExpressionError("clip has bounds in the wrong order")
    return min(max(value, low), high)


_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.Pow: _power,
}
_UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_COMPARED: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "abs": (1, abs),
    "min": (2, min),
    "max": (2, max),
    "pow": (2, _power),
    "clip": (3, _clip),
    "ifelse": (3, lambda test, yes, no: yes if test else no),
    "lt": (2, operator.lt),
    "le": (2, operator.le),
    "gt": (2, operator.gt),
    "ge": (2, operator.ge),
    "eq": (2, operator.eq),
    "ne": (2, operator.ne),
}
"""Number of arguments, and meaning. Of `ifelse` only the chosen branch is computed, as in a conditional expression."""


def _run_of(node: ast.expr, names: frozenset[str], depth: int) -> Compute:
    """A closure for a node; whatever is not on the list is refused."""
    if depth > 2 * MOST_NESTED:
        raise ExpressionError(f"the formula is nested deeper than {2 * MOST_NESTED} levels")

    def of(child: ast.expr) -> Compute:
        return _run_of(child, names, depth + 1)

    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _constant(value)
        case ast.Name(id=name) if name in names:
            return operator.itemgetter(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            two, first, second = _BINARY[type(op)], of(left), of(right)
            return lambda values: _finite(two(first(values), second(values)))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            one, inner = _UNARY[type(op)], of(operand)
            return lambda values: one(inner(values))
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARED for op in ops):
            return _comparison(of(left), [(_COMPARED[type(op)], of(o)) for op, o in zip(ops, others, strict=True)])
        case ast.BoolOp(op=op, values=values):
            return _junction(isinstance(op, ast.And), [of(value) for value in values])
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _choice(of(test), of(body), of(orelse))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            number, function = FUNCTIONS[name]
            if len(arguments) != number:
                raise ExpressionError(f"{name} has {len(arguments)} arguments; expected {number}")
            return _call(name, function, [of(argument) for argument in arguments])
        case ast.Name(id=name):
            raise ExpressionError(f"the name {quoted(name, 30)} is a function without arguments")
    raise ExpressionError("only numbers, names, operators and the listed functions are allowed")


def _constant(value: int | float) -> Compute:
    try:
        number = _finite(float(value))
    except OverflowError:
        raise ExpressionError("a number is too large") from None
    return lambda values: number


def _comparison(first: Compute, others: list[tuple[Callable[[float, float], bool], Compute]]) -> Compute:
    def run(values: Values) -> bool:
        left = first(values)
        for compare, other in others:
            right = other(values)
            if not compare(left, right):
                return False
            left = right
        return True

    return run


def _junction(conjunction: bool, parts: list[Compute]) -> Compute:
    def run(values: Values) -> float:
        value: float = conjunction
        for part in parts:
            value = part(values)
            if bool(value) is not conjunction:
                break
        return value

    return run


def _choice(test: Compute, yes: Compute, no: Compute) -> Compute:
    return lambda values: yes(values) if test(values) else no(values)


def _call(name: str, function: Callable[..., Any], arguments: list[Compute]) -> Compute:
    if name == "ifelse":
        return _choice(*arguments)
    return lambda values: _finite(function(*(argument(values) for argument in arguments)))
