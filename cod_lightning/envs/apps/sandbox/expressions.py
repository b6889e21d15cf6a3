"""Values of expressions of a policy's code. What is not listed here is refused."""

import ast
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from cod_lightning.envs.apps.sandbox.bounds import MOST_OUTPUT, CodeError, CodeRefused, Meter, checked, size, weight
from cod_lightning.envs.apps.sandbox.functions import FUNCTIONS
from cod_lightning.envs.apps.sandbox.operations import BINARY, UNARY, binary, compare, formatted, kind, method
from cod_lightning.envs.apps.sandbox.values import Builtin, CodeFunction, Namespace, Scope

ApiCall = Callable[[str, dict[str, Any]], Any]
"""Makes a call of an app; raises what `CodeSession.run` is to show to the code."""


class Returned(Exception):
    """`return`, on its way to the call."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Expressions(ABC):
    """One run, and what it used up."""

    def __init__(self, call: ApiCall) -> None:
        self.call, self.meter, self.shown, self.letters = call, Meter(), list[str](), 0

    @abstractmethod
    def block(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        """Carry out statements."""

    def say(self, text: str) -> None:
        """A line of output. Raises `CodeRefused` where there is too much of it."""
        self.letters += len(text) + 1
        if self.letters > MOST_OUTPUT:
            raise CodeRefused(f"more than {MOST_OUTPUT} letters of output")
        self.shown.append(text)

    def written(self, value: Any) -> str:
        """A value as JSON where it can be."""
        self.meter.weigh(value)
        try:
            return json.dumps(value)
        except (TypeError, ValueError):
            return repr(value)

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Bind a name, an item, or several of them."""
        if isinstance(target, ast.Name):
            if len(scope.values) >= 500:
                raise CodeRefused("too many variables")
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
            raise CodeRefused("such an assignment is not available")

    def function(self, args: ast.arguments, body: Sequence[ast.stmt] | ast.expr, scope: Scope) -> CodeFunction:
        """A function with named arguments alone."""
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs:
            raise CodeRefused("only plain arguments are available")
        names = tuple(one.arg for one in args.args)
        values = [self.value(one, scope) for one in args.defaults]
        return CodeFunction(names, dict(zip(names[len(names) - len(values) :], values, strict=True)), body, scope)

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression."""
        self.meter.step()
        self.meter.deeper()
        find = getattr(self, f"of_{type(node).__name__.lower()}", None)
        if find is None:
            raise CodeRefused(f"{type(node).__name__.lower()} is not available")
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
            raise CodeRefused("such a constant is not available")
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
                raise CodeRefused("** is not available")
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
            raise CodeRefused("such a format is not available")
        return formatted(self.meter, self.value(node.value, scope), spec)

    def of_binop(self, node: ast.BinOp, scope: Scope) -> Any:
        name = type(node.op).__name__
        if name not in BINARY:
            raise CodeRefused(f"{name.lower()} is not available")
        return binary(self.meter, name, self.value(node.left, scope), self.value(node.right, scope))

    def of_unaryop(self, node: ast.UnaryOp, scope: Scope) -> Any:
        value = self.value(node.operand, scope)
        name = type(node.op).__name__
        if name not in UNARY:
            raise CodeRefused(f"{name.lower()} is not available")
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

    def of_lambda(self, node: ast.Lambda, scope: Scope) -> CodeFunction:
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
        self.meter.deeper()
        for value in self.items(self.value(loops[0].iter, scope)):
            self.meter.step()
            self.assign(loops[0].target, value, scope)
            if all(self.value(test, scope) for test in loops[0].ifs):
                self.comprehended(loops[1:], scope, take)
        self.meter.depth -= 1

    def of_call(self, node: ast.Call, scope: Scope) -> Any:
        if any(isinstance(one, ast.Starred) for one in node.args) or any(one.arg is None for one in node.keywords):
            raise CodeRefused("* and ** are not available")
        if isinstance(node.func, ast.Attribute):
            target, function = self.value(node.func.value, scope), node.func.attr
        else:
            target, function = None, self.value(node.func, scope)
        args = [self.value(one, scope) for one in node.args]
        named = {one.arg: self.value(one.value, scope) for one in node.keywords if one.arg is not None}
        if isinstance(target, Namespace):
            if args:
                raise CodeError("TypeError: calls of apps take named arguments, as in mail.show(id=3)")
            self.meter.weigh(*named.values())
            result = self.call(f"{target.name}.{function}", named)
            self.meter.made(weight(result))
            return result
        if isinstance(node.func, ast.Attribute):
            if function == "sort":
                if not isinstance(target, list) or args:
                    raise CodeError("TypeError: sort is for lists")
                target[:] = FUNCTIONS["sorted"](self, target, **named)
                return None
            return method(self.meter, target, function, args, named)
        return self.called(function, args, named)

    def called(self, function: Any, args: list[Any], named: dict[str, Any]) -> Any:
        """The value that a function returns."""
        if isinstance(function, Builtin):
            return FUNCTIONS[function.name](self, *args, **named)
        if not isinstance(function, CodeFunction):
            raise CodeError(f"TypeError: {kind(function)} cannot be called")
        given = {**function.defaults, **dict(zip(function.names, args, strict=False)), **named}
        if len(args) > len(function.names) or set(given) != set(function.names):
            raise CodeError(f"TypeError: expected the arguments {', '.join(function.names)}")
        scope, depth = Scope(given, function.scope), self.meter.depth
        if isinstance(function.body, ast.expr):
            return self.value(function.body, scope)
        try:
            self.block(function.body, scope)
        except Returned as returned:
            self.meter.depth = depth
            return returned.value
        return None
