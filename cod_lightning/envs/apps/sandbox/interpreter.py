"""Walks the syntax tree of a policy's code. Whatever it meets that is not listed here is refused; variables outlive the turn."""

import ast
import copy
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cod_lightning.envs.apps.sandbox.bounds import (
    MOST_LETTERS,
    MOST_OUTPUT,
    CodeError,
    Meter,
    Refused,
    checked,
    size,
    weight,
)
from cod_lightning.envs.apps.sandbox.functions import FUNCTIONS
from cod_lightning.envs.apps.sandbox.operations import UNARY, binary, compare, formatted, kind, method

ApiCall = Callable[[str, dict[str, Any]], Any]
"""Makes a call of an app; raises what `Session.run` is told to show to the code."""


@dataclass
class Scope:
    """Variables, and those around them."""

    values: dict[str, Any] = field(default_factory=dict)
    around: "Scope | None" = None

    def find(self, name: str) -> Any:
        """The value of a name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.around
        raise CodeError(f"NameError: {name} is not defined")


@dataclass(eq=False)
class Function:
    """What `def` or `lambda` made."""

    names: tuple[str, ...]
    defaults: dict[str, Any]
    body: Sequence[ast.stmt] | ast.expr
    scope: Scope

    def held(self) -> list[Any]:
        """What it keeps besides the variables of the session."""
        values, scope = list(self.defaults.values()), self.scope
        while scope.around is not None and scope.around.around is not None:
            values += scope.values.values()
            scope = scope.around
        return values

    def __deepcopy__(self, memo: dict[int, Any]) -> "Function":
        twin = memo[id(self)] = Function(self.names, {}, self.body, self.scope)
        twin.defaults, twin.scope = copy.deepcopy(self.defaults, memo), copy.deepcopy(self.scope, memo)
        return twin

    def __repr__(self) -> str:
        return "function"


@dataclass(frozen=True)
class Namespace:
    """The name of an app."""

    name: str

    def __repr__(self) -> str:
        return f"app {self.name}"


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


_FAULTS = (
    CodeError, TypeError, ValueError, KeyError, IndexError, ZeroDivisionError, AttributeError, OverflowError, RuntimeError,
)  # fmt: skip


class Session:
    """Runs programs one after another; their variables stay.

    Args:
        apps: Names under which calls can be made, as in `mail.send(...)`.
    """

    def __init__(self, apps: Iterable[str]) -> None:
        self.apps = {name: Namespace(name) for name in apps}
        self.variables: dict[str, Any] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Session":
        twin = Session(())
        twin.apps, twin.variables = self.apps, copy.deepcopy(self.variables, memo)
        return twin

    def run(self, code: str, call: ApiCall, errors: tuple[type[Exception], ...]) -> str:
        """What the program shows: prints, the values of bare expressions, and why it stopped, if it did.

        Never raises. `errors` are what `call` raises for the code to see or catch.
        """
        program = _Program(self, call, errors)
        try:
            program.block(_parsed(code), program.scope)
        except Refused as refused:
            program.shown.append(f"refused: {refused}")
        except RecursionError:
            program.shown.append("refused: too deeply nested")
        except (_Return, _Break, _Continue):
            program.shown.append("refused: return, break or continue stands alone")
        except (*errors, *_FAULTS) as error:
            program.shown.append(_fault(error))
        try:
            weight(list(self.variables.values()))
        except Refused:
            self.variables = {}
            program.shown.append("refused: all variables are gone, since they held too much")
        return "\n".join(program.shown)


def _parsed(code: str) -> list[ast.stmt]:
    if len(code) > MOST_LETTERS:
        raise Refused(f"the code is longer than {MOST_LETTERS} letters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code).body
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise CodeError(f"SyntaxError{line}") from error
    except (RecursionError, MemoryError) as error:
        raise Refused("too deeply nested") from error


def _fault(error: Exception) -> str:
    """The error as one line."""
    text = str(error) if isinstance(error, CodeError) else f"{type(error).__name__}: {error}"
    if type(error).__name__ == "ApiError":
        text = str(error)
    return " ".join(text.split())[:300]


class _Program:
    """One run."""

    def __init__(self, session: Session, call: ApiCall, errors: tuple[type[Exception], ...]) -> None:
        self.session, self.call, self.errors = session, call, errors
        self.meter, self.shown, self.letters = Meter(), list[str](), 0
        self.scope = Scope(session.variables, Scope(session.apps))

    def say(self, text: str) -> None:
        """A line of output. Raises `Refused` where there is too much of it."""
        self.letters += len(text) + 1
        if self.letters > MOST_OUTPUT:
            raise Refused(f"more than {MOST_OUTPUT} letters of output")
        self.shown.append(text)

    # ------------------------------------------------------------------ statements

    def block(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self.meter.step()
            self.meter.deeper()
            run = getattr(self, f"do_{type(statement).__name__.lower()}", None)
            if run is None:
                raise Refused(f"{type(statement).__name__.lower()} is not available")
            run(statement, scope)
            self.meter.depth -= 1

    def do_expr(self, node: ast.Expr, scope: Scope) -> None:
        value = self.value(node.value, scope)
        if scope is self.scope and value is not None:
            self.say(self.written(value))

    def written(self, value: Any) -> str:
        """A value as JSON where it can be."""
        self.meter.weigh(value)
        try:
            return json.dumps(value)
        except (TypeError, ValueError):
            return repr(value)

    def do_pass(self, node: ast.Pass, scope: Scope) -> None:
        pass

    def do_assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self.value(node.value, scope)
        for target in node.targets:
            self.assign(target, value, scope)

    def do_annassign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value, scope), scope)

    def do_augassign(self, node: ast.AugAssign, scope: Scope) -> None:
        before = self.value(_loaded(node.target), scope)
        after = binary(self.meter, type(node.op).__name__, before, self.value(node.value, scope))
        self.assign(node.target, after, scope)

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Bind a name, an item, or several of them."""
        if isinstance(target, ast.Name):
            if len(scope.values) >= 500:
                raise Refused("too many variables")
            scope.values[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = self.items(value)
            if len(values) != len(target.elts):
                raise CodeError(f"ValueError: expected {len(target.elts)} values, found {len(values)}")
            for one, its in zip(target.elts, values, strict=True):
                self.assign(one, its, scope)
        elif isinstance(target, ast.Subscript):
            container, key = self.value(target.value, scope), self.value(target.slice, scope)
            if not isinstance(container, (list, dict)):
                raise CodeError(f"TypeError: {kind(container)} cannot be changed")
            self.meter.weigh(key)
            self.meter.made(1)
            container[key] = value
        else:
            raise Refused("such an assignment is not available")

    def do_delete(self, node: ast.Delete, scope: Scope) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                scope.find(target.id)
                scope.values.pop(target.id, None)
            elif isinstance(target, ast.Subscript):
                container, key = self.value(target.value, scope), self.value(target.slice, scope)
                self.meter.weigh(key)
                del container[key]
            else:
                raise Refused("such a del is not available")

    def do_if(self, node: ast.If, scope: Scope) -> None:
        self.block(node.body if self.value(node.test, scope) else node.orelse, scope)

    def do_while(self, node: ast.While, scope: Scope) -> None:
        self.loop(iter(lambda: bool(self.value(node.test, scope)), False), node, lambda _: None, scope)

    def do_for(self, node: ast.For, scope: Scope) -> None:
        values = self.items(self.value(node.iter, scope))
        self.loop(values, node, lambda value: self.assign(node.target, value, scope), scope)

    def loop(self, values: Iterable[Any], node: ast.For | ast.While, bind: Callable[[Any], None], scope: Scope) -> None:
        """The body once for every value."""
        depth = self.meter.depth
        for value in values:
            self.meter.step()
            bind(value)
            try:
                self.block(node.body, scope)
            except _Break:
                self.meter.depth = depth
                return
            except _Continue:
                self.meter.depth = depth
        self.block(node.orelse, scope)

    def do_break(self, node: ast.Break, scope: Scope) -> None:
        raise _Break

    def do_continue(self, node: ast.Continue, scope: Scope) -> None:
        raise _Continue

    def do_return(self, node: ast.Return, scope: Scope) -> None:
        raise _Return(None if node.value is None else self.value(node.value, scope))

    def do_raise(self, node: ast.Raise, scope: Scope) -> None:
        raise CodeError("the code raised an error")

    def do_try(self, node: ast.Try, scope: Scope) -> None:
        if node.finalbody:
            raise Refused("finally is not available")
        depth = self.meter.depth
        try:
            self.block(node.body, scope)
        except (*self.errors, *_FAULTS) as error:
            if isinstance(error, RecursionError):
                raise
            self.meter.depth = depth
            if not node.handlers:
                raise
            if node.handlers[0].name:
                scope.values[node.handlers[0].name] = _fault(error)
            self.block(node.handlers[0].body, scope)
        else:
            self.block(node.orelse, scope)

    def do_functiondef(self, node: ast.FunctionDef, scope: Scope) -> None:
        if node.decorator_list:
            raise Refused("decorators are not available")
        self.assign(ast.Name(node.name), self.function(node.args, node.body, scope), scope)

    def function(self, args: ast.arguments, body: Sequence[ast.stmt] | ast.expr, scope: Scope) -> Function:
        """A function with named arguments alone."""
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs:
            raise Refused("only plain arguments are available")
        names = tuple(one.arg for one in args.args)
        values = [self.value(one, scope) for one in args.defaults]
        return Function(names, dict(zip(names[len(names) - len(values) :], values, strict=True)), body, scope)

    # ------------------------------------------------------------------ expressions

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression."""
        self.meter.step()
        self.meter.deeper()
        find = getattr(self, f"of_{type(node).__name__.lower()}", None)
        if find is None:
            raise Refused(f"{type(node).__name__.lower()} is not available")
        found = find(node, scope)
        self.meter.depth -= 1
        return found

    def items(self, value: Any) -> list[Any]:
        """What a loop goes through."""
        if not isinstance(value, (list, tuple, dict, str)):
            raise CodeError(f"TypeError: {kind(value)} cannot be gone through")
        self.meter.made(len(value))
        return list(value)

    def of_constant(self, node: ast.Constant, scope: Scope) -> Any:
        if not isinstance(node.value, (str, int, float, type(None))):
            raise Refused("such a constant is not available")
        return checked(node.value)

    def of_name(self, node: ast.Name, scope: Scope) -> Any:
        return scope.find(node.id)

    def of_list(self, node: ast.List, scope: Scope) -> list[Any]:
        self.meter.made(len(node.elts))
        return [self.value(one, scope) for one in node.elts]

    def of_tuple(self, node: ast.Tuple, scope: Scope) -> tuple[Any, ...]:
        return tuple(self.of_list(node, scope))  # pyright: ignore[reportArgumentType]

    def of_dict(self, node: ast.Dict, scope: Scope) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise Refused("** is not available")
            self.put(made, self.value(key, scope), self.value(value, scope))
        return made

    def put(self, made: dict[Any, Any], key: Any, value: Any) -> None:
        """One more entry."""
        self.meter.weigh(key)
        self.meter.made(2)
        made[key] = value

    def of_joinedstr(self, node: ast.JoinedStr, scope: Scope) -> str:
        pieces = [str(self.value(one, scope)) for one in node.values]
        self.meter.made(sum(map(size, pieces)))
        return "".join(pieces)

    def of_formattedvalue(self, node: ast.FormattedValue, scope: Scope) -> str:
        spec = "" if node.format_spec is None else str(self.value(node.format_spec, scope))
        if node.conversion not in (-1, ord("s")):
            raise Refused("such a format is not available")
        return formatted(self.meter, self.value(node.value, scope), spec)

    def of_binop(self, node: ast.BinOp, scope: Scope) -> Any:
        name = type(node.op).__name__
        if name not in ("Add", "Sub", "Mult", "Div", "FloorDiv", "Mod", "Pow"):
            raise Refused(f"{name.lower()} is not available")
        return binary(self.meter, name, self.value(node.left, scope), self.value(node.right, scope))

    def of_unaryop(self, node: ast.UnaryOp, scope: Scope) -> Any:
        value = self.value(node.operand, scope)
        name = type(node.op).__name__
        if name not in UNARY:
            raise Refused(f"{name.lower()} is not available")
        return UNARY[name](value)

    def of_boolop(self, node: ast.BoolOp, scope: Scope) -> Any:
        stops = isinstance(node.op, ast.Or)
        value: Any = None
        for one in node.values:
            value = self.value(one, scope)
            if bool(value) is stops:
                break
        return value

    def of_compare(self, node: ast.Compare, scope: Scope) -> bool:
        left = self.value(node.left, scope)
        for op, other in zip(node.ops, node.comparators, strict=True):
            right = self.value(other, scope)
            if not compare(self.meter, type(op).__name__, left, right):
                return False
            left = right
        return True

    def of_ifexp(self, node: ast.IfExp, scope: Scope) -> Any:
        return self.value(node.body if self.value(node.test, scope) else node.orelse, scope)

    def of_subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        container = self.value(node.value, scope)
        if not isinstance(container, (str, list, tuple, dict)):
            raise CodeError(f"TypeError: {kind(container)} has no items")
        if isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper, node.slice.step)
            ends = [None if one is None else self.value(one, scope) for one in bounds]
            self.meter.made(size(container))
            return container[slice(*ends)]  # pyright: ignore[reportArgumentType, reportCallIssue]
        key = self.value(node.slice, scope)
        self.meter.weigh(key)
        try:
            return container[key]
        except KeyError as error:
            raise CodeError(f"KeyError: {self.written(key):.60}") from error

    def of_lambda(self, node: ast.Lambda, scope: Scope) -> Function:
        return self.function(node.args, node.body, scope)

    def of_listcomp(self, node: ast.ListComp | ast.GeneratorExp, scope: Scope) -> list[Any]:
        made: list[Any] = []
        self.comprehended(node.generators, Scope({}, scope), lambda inner: made.append(self.value(node.elt, inner)))
        return made

    of_generatorexp = of_listcomp

    def of_dictcomp(self, node: ast.DictComp, scope: Scope) -> dict[Any, Any]:
        made: dict[Any, Any] = {}

        def take(inner: Scope) -> None:
            self.put(made, self.value(node.key, inner), self.value(node.value, inner))

        self.comprehended(node.generators, Scope({}, scope), take)
        return made

    def comprehended(self, loops: Sequence[ast.comprehension], scope: Scope, take: Callable[[Scope], None]) -> None:
        """`take` for every combination that the loops let through."""
        if not loops:
            self.meter.made(1)
            take(scope)
            return
        for value in self.items(self.value(loops[0].iter, scope)):
            self.meter.step()
            self.assign(loops[0].target, value, scope)
            if all(self.value(test, scope) for test in loops[0].ifs):
                self.comprehended(loops[1:], scope, take)

    def of_call(self, node: ast.Call, scope: Scope) -> Any:
        if any(isinstance(one, ast.Starred) for one in node.args) or any(one.arg is None for one in node.keywords):
            raise Refused("* and ** are not available")
        if isinstance(node.func, ast.Attribute):
            target, function = self.value(node.func.value, scope), node.func.attr
        elif isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not _defined(node.func.id, scope):
            target, function = None, node.func.id
        else:
            target, function = None, self.value(node.func, scope)
        args = [self.value(one, scope) for one in node.args]
        named = {one.arg: self.value(one.value, scope) for one in node.keywords if one.arg is not None}
        if isinstance(function, Function):
            return self.called(function, args, named)
        if isinstance(target, Namespace):
            if args:
                raise CodeError("TypeError: calls of apps take named arguments, as in mail.show(id=3)")
            self.meter.weigh(*named.values())
            return self.call(f"{target.name}.{function}", named)
        if isinstance(node.func, ast.Attribute):
            if function == "sort":
                if not isinstance(target, list) or args:
                    raise CodeError("TypeError: sort is for lists")
                target[:] = FUNCTIONS["sorted"](self, target, **named)
                return None
            return method(self.meter, target, function, args, named)
        if isinstance(function, str) and function in FUNCTIONS:
            return FUNCTIONS[function](self, *args, **named)
        raise CodeError(f"TypeError: {kind(function)} cannot be called")

    def called(self, function: Function, args: list[Any], named: dict[str, Any]) -> Any:
        """The value that a function of the code returns."""
        given = {**function.defaults, **dict(zip(function.names, args, strict=False)), **named}
        if len(args) > len(function.names) or set(given) != set(function.names):
            raise CodeError(f"TypeError: expected the arguments {', '.join(function.names)}")
        scope, depth = Scope(given, function.scope), self.meter.depth
        if isinstance(function.body, ast.expr):
            return self.value(function.body, scope)
        try:
            self.block(function.body, scope)
        except _Return as returned:
            self.meter.depth = depth
            return returned.value
        return None


def _defined(name: str, scope: Scope) -> bool:
    try:
        scope.find(name)
    except CodeError:
        return False
    return True


def _loaded(target: ast.expr) -> ast.expr:
    """The target of `+=` as an expression."""
    if isinstance(target, (ast.Name, ast.Subscript)):
        return target
    raise Refused("such an assignment is not available")
