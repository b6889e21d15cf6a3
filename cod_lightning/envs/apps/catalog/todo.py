"""Things to do."""

from collections.abc import Iterable

from cod_lightning.envs.apps.api import App, AppDesk
from cod_lightning.envs.apps.schema import Todo

todo = App("todo", "Things to do, each due on a day, in projects.")
todo.shows("show", Todo)
todo.creates("create", Todo, "title due project")
todo.updates("update", Todo, "title due project")
todo.deletes("delete", Todo)
todo.sets("complete", Todo, "Marks a thing as done.", done=True)
todo.sets("reopen", Todo, "Marks a thing as not done.", done=False)


@todo.lists
def list_(desk: AppDesk, query: str = "", project: str = "", done: bool | None = None) -> Iterable[Todo]:
    """Things whose title contains the query, of a project, by the day on which they are due."""
    rows = desk.db.all(Todo)
    found = (
        t for t in rows if query.lower() in t.title.lower() and project in ("", t.project) and done in (None, t.done)
    )
    return sorted(found, key=lambda t: (t.due, t.id))


todo.values("projects", Todo, "project", "Names of all projects.")
