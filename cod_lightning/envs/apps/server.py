"""The site that answers calls: tokens, quirks, pages, bounds; one for every task."""

from typing import Any

import msgspec

from cod_lightning.envs.apps.api import ApiError, App, AppDesk, Endpoint
from cod_lightning.envs.apps.database import Database
from cod_lightning.envs.apps.facts import HiddenFacts
from cod_lightning.envs.apps.person import Owner
from cod_lightning.envs.apps.user import User

PAGE = 10
"""Documented items of a page."""
FREE = ("user.apps", "user.docs", "user.done")
"""Calls that do not count."""


class AppServer(AppDesk):
    """Answers calls on a database of its own, of which a copy is a copy of all that the apps hold.

    Args:
        budget: Calls that are answered in all, those that are `FREE` aside.
    """

    def __init__(
        self, db: Database, facts: HiddenFacts, person: Owner, user: User, apps: tuple[App, ...], budget: int
    ) -> None:
        super().__init__(db, facts, person, user, apps)
        self.budget = budget
        self.calls = self.calls_this_turn = 0
        self.open: frozenset[str] = frozenset()
        """Apps with a log-in."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "AppServer":
        twin = object.__new__(AppServer)
        twin.__dict__.update(self.__dict__)
        twin.db, twin.user = self.db.copy(), self.user.copy()
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """All but the apps, whose functions stay where they are; who reads it back gives it those of its site."""
        return {key: value for key, value in vars(self).items() if key != "apps"}

    def begin_turn(self) -> None:
        """A new turn: calls of the one before no longer count against the rate."""
        self.calls_this_turn = 0

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """The result in plain values. Raises an `ApiError` for whatever is wrong with the call."""
        if self.finished:
            raise ApiError(409, "the task is over")
        if name not in FREE:
            self._count()
        endpoint = self._endpoint(name)
        given = dict(arguments)
        if endpoint.private and (given.pop("token", "") != self._token(endpoint.app) or endpoint.app not in self.open):
            raise ApiError(401, f"{endpoint.app} needs the token that its log-in gives")
        if endpoint.writes and self.facts.field:
            field, _, value = self.facts.field.partition("=")
            if given.pop(field, None) != value:
                raise ApiError(422, f"an argument is missing; expected {self.facts.field}")
        page = given.pop("page", 1) if endpoint.paged else 1
        values = endpoint.checked(given)
        if endpoint.name == "login":
            return self._logged_in(endpoint.app, values["password"])
        before = self.db.copy()
        try:
            result = endpoint.run(self, **values)
            return msgspec.to_builtins(self._page(list(result), page) if endpoint.paged else result)
        except ApiError:
            self.db = before
            raise

    def _count(self) -> None:
        if self.calls >= self.budget:
            raise ApiError(429, "the calls of this task are used up; user.done ends it")
        self.calls += 1
        if self.facts.rate and self.calls_this_turn >= int(self.facts.rate):
            raise ApiError(429, f"too many calls in a turn; {self.facts.rate} are answered")
        self.calls_this_turn += 1

    def _endpoint(self, name: str) -> Endpoint:
        app, _, short = name.partition(".")
        found = self.table.get((app, short))
        if found is None and short == "login" and (app, self.facts.moved) in self.table:
            raise ApiError(410, f"{app}.login has moved; user.endpoints(app='{app}') lists what there is")
        if found is None:
            raise ApiError(404, "there is no such call; user.docs lists those of an app")
        return found

    def _logged_in(self, app: str, password: str) -> dict[str, str]:
        if password != self.person.password(app):
            raise ApiError(403, "the password is wrong; user.passwords has it")
        self.open |= {app}
        return {"token": self._token(app)}

    def _token(self, app: str) -> str:
        return f"{app}-{self.person.seed % 9973:04}"

    def _page(self, rows: list[Any], page: Any) -> dict[str, Any]:
        size = int(self.facts.page or PAGE)
        pages = max(1, -(-len(rows) // size))
        if not isinstance(page, int) or isinstance(page, bool) or not 1 <= page <= pages:
            raise ApiError(422, f"page does not fit; there are {pages}")
        return {"items": rows[(page - 1) * size : page * size], "page": page, "pages": pages}
