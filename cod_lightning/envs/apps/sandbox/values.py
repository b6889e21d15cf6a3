"""What names stand for in code besides plain values: apps, functions, and the scopes that hold them."""

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cod_lightning.envs.apps.sandbox.bounds import CodeError


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
class CodeFunction:
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

    def __deepcopy__(self, memo: dict[int, Any]) -> "CodeFunction":
        twin = memo[id(self)] = CodeFunction(self.names, {}, self.body, self.scope)
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


@dataclass(frozen=True)
class Builtin:
    """The name of a function that is always there."""

    name: str

    def __repr__(self) -> str:
        return f"function {self.name}"
