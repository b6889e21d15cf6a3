"""How an app declares its endpoints: one typed function each, from which documentation, checks, errors and pages follow.

    notes = App("notes", "Short texts.")

    @notes.lists
    def list(desk: AppDesk, tag: str = "") -> Iterable[ShortNote]:
        '''Notes, oldest first.'''
        return (note for note in desk.db.all(ShortNote) if tag in ("", note.tag))

`reads`, `lists` and `writes` say what an endpoint does; `shows`, `values`, `creates`, `updates`, `sets` and `deletes` declare what
tables share.
"""

import inspect
import math
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT
from msgspec.structs import fields as struct_fields
from msgspec.structs import replace

from cod_lightning.envs.apps.database import Database, R, TableRow, noun
from cod_lightning.envs.apps.facts import HiddenFacts
from cod_lightning.envs.apps.person import NOW, Owner
from cod_lightning.envs.apps.user import User

MOST_LETTERS, MOST_ITEMS, LARGEST = 2_000, 50, 10**9
"""Bounds of an argument: letters of a text, items of a list, size of a number."""


class ApiError(Exception):
    """What an endpoint answers instead of a result."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"error {status}: {message}")
        self.status, self.message = status, message


class AppDesk:
    """What the function of an endpoint works with.

    Args:
        db: What the apps hold.
        facts: The quirks of the site.
        person: Whose apps they are.
        user: Who answers questions.
        apps: All apps of the site, as they are documented.
    """

    now = NOW
    """The person's time."""

    def __init__(self, db: Database, facts: HiddenFacts, person: Owner, user: User, apps: "tuple[App, ...]") -> None:
        self.db, self.facts, self.person, self.user, self.apps = db, facts, person, user, apps
        self.email = person.email
        """The person's address."""
        self.finished, self.answer = False, ""
        self.replies: tuple[tuple[str, Database], ...] = ()
        """The person's replies, each with the state at which it was given."""

    @property
    def passwords(self) -> dict[str, str]:
        """Of the person, by app."""
        return {app.name: self.person.password(app.name) for app in self.apps if app.private}

    @property
    def table(self) -> "dict[tuple[str, str], Endpoint]":
        """The endpoints that are really there, by app and the name that the site gives them."""
        return _table(self.apps, self.facts.moved)


@lru_cache(maxsize=64)
def _table(apps: "tuple[App, ...]", moved: str) -> "dict[tuple[str, str], Endpoint]":
    return {
        (app.name, moved if moved and name == "login" else name): endpoint
        for app in apps
        for name, endpoint in app.endpoints.items()
    }


def find(desk: AppDesk, kind: type[R], id: int) -> R:
    """The row with this id. Raises a 404."""
    if (row := desk.db.get(kind, id)) is None:
        raise ApiError(404, f"no {noun(kind)} has id {id}")
    return row


@dataclass(frozen=True)
class Parameter:
    """One argument of an endpoint."""

    name: str
    kind: str
    """Its type as documentation shows it."""
    fits: Callable[[Any], bool]
    default: Any = inspect.Parameter.empty

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        kind = self.kind.removeprefix("list of ")
        one: dict[str, Any] = {"type": _SCHEMA_TYPES.get(kind, "string")}
        if kind not in _SCHEMA_TYPES:
            one["description"] = kind
        return {"type": "array", "items": one} if kind != self.kind else one

    def described(self) -> str:
        """`count: whole number = 1`."""
        return f"{self.name}: {self.kind}" + ("" if self.required else f" = {self.default!r}")


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_LETTERS


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST


_PLAIN: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    str: ("text", _text),
    int: ("whole number", _whole),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    float: ("number", lambda value: _whole(value) or (isinstance(value, float) and math.isfinite(value))),
}


_SCHEMA_TYPES = {"text": "string", "whole number": "integer", "number": "number", "true or false": "boolean"}


def _kind(hint: Any) -> tuple[str, Callable[[Any], bool]]:
    """How a type is called and checked."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        form = re.compile(re.sub(r"\d", r"[0-9]", inner[1].partition(" such as ")[2]))
        return inner[1], lambda value: isinstance(value, str) and form.fullmatch(value) is not None
    if origin is Literal:
        typed = [(type(one), one) for one in inner]
        return "one of " + ", ".join(map(repr, inner)), lambda value: (type(value), value) in typed
    if origin in (Union, types.UnionType):
        name, fits = _kind(next(one for one in inner if one is not type(None)))
        return name, lambda value: value is None or fits(value)
    assert origin in (list, tuple), f"an endpoint cannot take {hint}"
    name, fits = _kind(inner[0])
    return f"list of {name}", lambda v: isinstance(v, (list, tuple)) and len(v) <= MOST_ITEMS and all(map(fits, v))


@dataclass(frozen=True)
class Endpoint:
    """One documented call."""

    app: str
    name: str
    about: str
    parameters: tuple[Parameter, ...]
    run: Callable[..., Any]
    paged: bool = False
    writes: bool = False
    private: bool = True
    """Whether it needs a token."""

    @property
    def documentation(self) -> str:
        """Signature and sentence, as an agent can ask for it."""
        shown = [parameter.described() for parameter in self.parameters]
        shown += ["page: whole number = 1"] if self.paged else []
        shown += ["token: text"] if self.private else []
        paged = " A page of at most 10 items." if self.paged else ""
        return f"{self.app}.{self.name}({', '.join(shown)}) {self.about}{paged}"

    @property
    def schema(self) -> dict[str, Any]:
        """Of its arguments, as JSON Schema."""
        properties = {parameter.name: parameter.schema for parameter in self.parameters}
        properties |= {"page": {"type": "integer"}} if self.paged else {}
        properties |= {"token": {"type": "string"}} if self.private else {}
        required = [parameter.name for parameter in self.parameters if parameter.required]
        return {"type": "object", "properties": properties, "required": [*required, *["token"] * self.private]}

    def checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments, if they are those that are documented. Raises a 422."""
        given = dict(arguments)
        for parameter in self.parameters:
            if parameter.name not in given:
                if parameter.required:
                    raise ApiError(422, f"{self.app}.{self.name} needs {parameter.described()}")
                given[parameter.name] = parameter.default
            elif not parameter.fits(given[parameter.name]):
                raise ApiError(422, f"{parameter.name} does not fit; expected {parameter.kind}")
        if len(given) > len(self.parameters):
            known = ", ".join(parameter.name for parameter in self.parameters) or "none"
            raise ApiError(422, f"{self.app}.{self.name} has an unknown argument; it takes {known}")
        return given


F = TypeVar("F", bound=Callable[..., Any])


class App:
    """A named set of endpoints; a private one has `login` and asks for its token.

    Args:
        name: First part of its endpoints' names.
        about: One sentence.
        private: Whether its endpoints need a token.
    """

    def __init__(self, name: str, about: str, *, private: bool = True) -> None:
        self.name, self.about, self.private = name, about, private
        self.endpoints: dict[str, Endpoint] = {}
        if private:
            self._add("login", "Gives the token that all other calls of the app need.", {"password": (str, ...)}, None)

    def reads(self, function: F) -> F:
        """An endpoint that changes nothing."""
        return self._declared(function)

    def lists(self, function: F) -> F:
        """An endpoint that gives rows, page by page."""
        return self._declared(function, paged=True)

    def writes(self, function: F) -> F:
        """An endpoint that changes something."""
        return self._declared(function, writes=True)

    def shows(self, name: str, kind: type[TableRow]) -> None:
        """An endpoint that shows one row."""
        self._add(name, f"One {noun(kind)}.", {"id": (int, ...)}, lambda desk, id: find(desk, kind, id))

    def values(self, name: str, kind: type[TableRow], column: str, about: str) -> None:
        """An endpoint that gives the different texts of a column."""
        self._add(name, about, {}, lambda desk: sorted({getattr(row, column) for row in desk.db.all(kind)}))

    def deletes(self, name: str, kind: type[TableRow]) -> None:
        """An endpoint that takes one row out."""

        def run(desk: AppDesk, id: int) -> dict[str, Any]:
            desk.db.remove(find(desk, kind, id))
            return {"deleted": id}

        self._add(name, f"Deletes one {noun(kind)}.", {"id": (int, ...)}, run, writes=True)

    def creates(self, name: str, kind: type[TableRow], among: str) -> None:
        """An endpoint that makes a row from these columns; one with a default may be left out."""

        def run(desk: AppDesk, **values: Any) -> TableRow:
            return desk.db.add(kind(**_frozen(values)))

        self._add(name, f"Makes a new {noun(kind)}.", _columns(kind, among), run, writes=True)

    def updates(self, name: str, kind: type[TableRow], among: str) -> None:
        """An endpoint that changes those of these columns that are given."""

        def run(desk: AppDesk, id: int, **values: Any) -> TableRow:
            given = {name: value for name, value in _frozen(values).items() if value is not None}
            return desk.db.put(replace(find(desk, kind, id), **given))

        optional = {column: (hint | None, None) for column, (hint, _) in _columns(kind, among).items()}
        about = f"Changes one {noun(kind)}; what is left out stays."
        self._add(name, about, {"id": (int, ...), **optional}, run, writes=True)

    def sets(self, name: str, kind: type[TableRow], about: str, **values: Any) -> None:
        """An endpoint that gives columns of one row fixed values."""

        def run(desk: AppDesk, id: int) -> TableRow:
            return desk.db.put(replace(find(desk, kind, id), **values))

        self._add(name, about, {"id": (int, ...)}, run, writes=True)

    def _declared(self, function: F, *, paged: bool = False, writes: bool = False) -> F:
        hints = get_type_hints(function, include_extras=True)
        taken = list(inspect.signature(function).parameters.values())[1:]
        columns = {p.name: (hints[p.name], ... if p.default is p.empty else p.default) for p in taken}
        assert function.__doc__, f"{self.name}.{function.__name__} has no docstring"
        self._add(function.__name__.rstrip("_"), inspect.cleandoc(function.__doc__), columns, function, paged, writes)
        return function

    def _add(
        self,
        name: str,
        about: str,
        columns: dict[str, tuple[Any, Any]],
        run: Callable[..., Any] | None,
        paged: bool = False,
        writes: bool = False,
    ) -> None:
        assert name not in self.endpoints, f"{self.name}.{name} is declared twice"
        parameters = tuple(
            Parameter(column, *_kind(hint), **({} if default is ... else {"default": default}))
            for column, (hint, default) in columns.items()
        )
        private = self.private and run is not None
        self.endpoints[name] = Endpoint(
            self.name, name, about, parameters, run or (lambda: None), paged, writes, private
        )


def _columns(kind: type[TableRow], among: str) -> dict[str, tuple[Any, Any]]:
    """(type, default or ...) of these columns."""
    hints = get_type_hints(kind, include_extras=True)
    defaults = {field.name: field.default for field in struct_fields(kind)}
    return {name: (hints[name], ... if defaults[name] is NODEFAULT else defaults[name]) for name in among.split()}


def _frozen(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
