"""Walks the syntax tree of a policy's code. Whatever it meets that is not listed here is refused; variables outlive the turn."""

import ast
import copy
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cod_lightning.envs.apps.sandbox.bounds import MOST_LETTERS, CodeError, CodeRefused, weight
from cod_lightning.envs.apps.sandbox.expressions import ApiCall, Expressions, Returned
from cod_lightning.envs.apps.sandbox.functions import FUNCTIONS
from cod_lightning.envs.apps.sandbox.operations import binary
from cod_lightning.envs.apps.sandbox.values import Builtin, Namespace, Scope

_PARSING = threading.Lock()


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


_FAULTS = (
    CodeError, TypeError, ValueError, KeyError, IndexError, ZeroDivisionError, AttributeError, OverflowError, RuntimeError,
)  # fmt: skip


class CodeSession:
    """Runs programs one after another; their variables stay.

    Args:
        apps: Names under which calls can be made, as in `mail.send(...)`.
    """

    def __init__(self, apps: Iterable[str]) -> None:
        self.always = {**{name: Builtin(name) for name in FUNCTIONS}, **{name: Namespace(name) for name in apps}}
        self.variables: dict[str, Any] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "CodeSession":
        twin = object.__new__(CodeSession)
        memo[id(self.always)] = twin.always = self.always
        twin.variables = copy.deepcopy(self.variables, memo)
        return twin

    def run(self, code: str, call: ApiCall, errors: tuple[type[Exception], ...]) -> str:
        """What the program shows: prints, the values of bare expressions, and why it stopped, if it did.

        Never raises. `errors` are what `call` raises for the code to see or catch.
        """
        program = _Program(self, call, errors)
        try:
            program.block(_parsed(code), program.scope)
        except CodeRefused as refused:
            program.shown.append(f"refused: {refused}")
        except RecursionError:
            program.shown.append("refused: too deeply nested")
        except (Returned, _Break, _Continue):
            program.shown.append("refused: return, break or continue stands alone")
        except (*errors, *_FAULTS) as error:
            program.shown.append(program.fault(error))
        try:
            weight(list(self.variables.values()))
        except CodeRefused:
            self.variables = {}
            program.shown.append("refused: all variables are gone, since they held too much")
        return "\n".join(program.shown)


def _parsed(code: str) -> list[ast.stmt]:
    if len(code) > MOST_LETTERS:
        raise CodeRefused(f"the code is longer than {MOST_LETTERS} letters")
    try:
        with _PARSING, warnings.catch_warnings():  # which changes the filters of all threads
            warnings.simplefilter("ignore")
            return ast.parse(code).body
    except (SyntaxError, ValueError) as error:
        line = f"line {error.lineno}" if isinstance(error, SyntaxError) else "not to be read"
        raise CodeError(f"SyntaxError: {line}") from error
    except (RecursionError, MemoryError) as error:
        raise CodeRefused("too deeply nested") from error


class _Program(Expressions):
    """One run."""

    def __init__(self, session: CodeSession, call: ApiCall, errors: tuple[type[Exception], ...]) -> None:
        super().__init__(call)
        self.errors = errors
        self.scope = Scope(session.variables, Scope(session.always))

    def fault(self, error: Exception) -> str:
        """The error as one line."""
        plain = isinstance(error, (CodeError, *self.errors))
        return " ".join((str(error) if plain else f"{type(error).__name__}: {error}").split())[:300]

    def block(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self.meter.step()
            self.meter.deeper()
            run = getattr(self, f"do_{type(statement).__name__.lower()}", None)
            if run is None:
                raise CodeRefused(f"{type(statement).__name__.lower()} is not available")
            run(statement, scope)
            self.meter.depth -= 1

    def do_expr(self, node: ast.Expr, scope: Scope) -> None:
        value = self.value(node.value, scope)
        if scope is self.scope and value is not None:
            self.say(self.written(value))

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
                raise CodeRefused("such a del is not available")

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
        raise Returned(None if node.value is None else self.value(node.value, scope))

    def do_raise(self, node: ast.Raise, scope: Scope) -> None:
        raise CodeError("Error: raised by the code")

    def do_try(self, node: ast.Try, scope: Scope) -> None:
        if node.finalbody or len(node.handlers) != 1:
            raise CodeRefused("try takes one except, which catches all errors, and no finally")
        depth = self.meter.depth
        try:
            self.block(node.body, scope)
        except (*self.errors, *_FAULTS) as error:
            if isinstance(error, RecursionError):
                raise
            self.meter.depth = depth
            if node.handlers[0].name:
                scope.values[node.handlers[0].name] = self.fault(error)
            self.block(node.handlers[0].body, scope)
        else:
            self.block(node.orelse, scope)

    def do_functiondef(self, node: ast.FunctionDef, scope: Scope) -> None:
        if node.decorator_list:
            raise CodeRefused("decorators are not available")
        self.assign(ast.Name(node.name), self.function(node.args, node.body, scope), scope)


def _loaded(target: ast.expr) -> ast.expr:
    """The target of `+=` as an expression."""
    if isinstance(target, (ast.Name, ast.Subscript)):
        return target
    raise CodeRefused("such an assignment is not available")
