"""The person for whom the agent works, and what the agent may look up."""

from cod_lightning.envs.apps.api import ApiError, App, AppDesk

user = App(
    "user", "The person you work for: passwords, documentation, questions, and the end of the task.", private=False
)


@user.reads
def passwords(desk: AppDesk) -> dict[str, str]:
    """My passwords, by app."""
    return desk.passwords


@user.reads
def apps(desk: AppDesk) -> dict[str, str]:
    """What each app is for."""
    return {app.name: app.about for app in desk.apps}


@user.reads
def docs(desk: AppDesk, app: str) -> list[str]:
    """The documentation of an app: its calls, their arguments and defaults."""
    for one in desk.apps:
        if one.name == app:
            return [endpoint.documentation for endpoint in one.endpoints.values()]
    raise ApiError(404, "there is no such app; user.apps lists them")


@user.reads
def endpoints(desk: AppDesk, app: str) -> tuple[str, ...]:
    """Names of the calls that an app really has, without documentation."""
    if names := tuple(name for home, name in desk.table if home == app):
        return names
    raise ApiError(404, "there is no such app; user.apps lists them")


@user.reads
def ask(desk: AppDesk, question: str) -> str:
    """Asks me a question; every question costs you something, and I answer only a few."""
    said = desk.user.asked(question)
    desk.replies += ((said, desk.db.copy()),)
    return said


@user.reads
def done(desk: AppDesk, answer: str = "") -> str:
    """Ends the task, with an answer where I asked for one."""
    desk.finished, desk.answer = True, answer
    return "thank you"
