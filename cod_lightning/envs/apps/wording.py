"""Sentences for language models: rules, what is seen in a turn, and the person's words after a task."""

from cod_lightning.envs.apps.checks import Check
from cod_lightning.envs.apps.facts import sentence
from cod_lightning.envs.apps.person import NOW
from cod_lightning.envs.apps.tasks import AppsTask

COLUMNS = {
    "card": ("card", "balance"),
    "address": ("address",),
    "boss": ("to", "guests", "shared_with"),
    "sign": ("body", "text"),
    "minutes": ("minutes",),
    "zone": ("starts",),
}
"""Columns in which a wrong belief about a fact shows."""


class NaturalApps:
    """Full sentences."""

    def rules(self, how: str, example: str, apps: str, max_turns: int, patience: int) -> str:
        """System text; `how` says what a turn is."""
        questions = f"{patience} question{'s' * (patience > 1)}"
        return (
            "You work in the apps of a person and do what the person asks for, and nothing else: whatever else is changed "
            "counts against you.\n\n"
            f"Apps: {apps}. user.apps() says what they are for, user.docs(app=...) documents one. Private apps have a log-in "
            "(user.passwords()), which gives the token that their other calls need. Lists come in pages: "
            '{"items": [...], "page": 1, "pages": 2}.\n'
            "A site may have ways of its own that no documentation has, and a person has habits; what holds here may hold in "
            f"related tasks, too. user.ask(question=...) asks the person, who answers {questions} of a task and would "
            "rather not. Calls are counted, those of user.apps, user.docs and user.done aside, and so are turns. "
            "user.done() ends the task, user.done(answer=...) where a question was asked.\n\n"
            f"You have {max_turns} turns. A turn is {how}. The first error stops the rest of the turn.\n\n"
            + (
                f"Answer with brief reasoning, then what you do in this form, once:\n{example}"
                if example
                else "Tools that user.docs documents can be called by their names, too."
            )
        )

    def opening(self, task: AppsTask) -> str:
        """The task."""
        person = task.whose
        return f"It is {NOW} for me, {person.name} ({person.email}).\nTask: {task.text}"

    def state(self, calls_left: int, turn: int, max_turns: int) -> str:
        """The last line of what is seen."""
        return f"Calls left: {calls_left}. Turn {turn + 1} of {max_turns}."

    def feedback(self, task: AppsTask, outcome: str, results: list[Check], shown: str) -> str:
        """Words after the task."""
        if outcome == "malformed":
            return f"Your answer could not be read: {shown}. The task is over."
        if outcome == "win":
            return "The task is done as I wanted it."
        ending = "You have no turns left." if outcome == "late" else "The task is not done as I wanted it."
        failed = [check for check in results if not check.passed]
        columns = {name for check in failed for name in check.wrong}
        facts = [
            sentence(slot, getattr(task.facts, slot))
            for slot in task.kind.slots
            if columns & set(COLUMNS.get(slot, ()))
        ]
        wrong = "; ".join(dict.fromkeys(check.about for check in failed))[:400]
        return " ".join(
            [ending, f"{len(results) - len(failed)} of {len(results)} checks passed. Not so: {wrong}.", *facts]
        )
