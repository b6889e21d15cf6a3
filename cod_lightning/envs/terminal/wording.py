"""Sentences for language models: rules, what is seen before a command line, and words after the task."""

import re
from dataclasses import dataclass

from cod_lightning.envs.answers import clean
from cod_lightning.envs.terminal.options import MOST_COMMANDS, Result
from cod_lightning.envs.terminal.plans import TaskText
from cod_lightning.envs.terminal.shell import ALIASES, COMMANDS
from cod_lightning.envs.terminal.tasks import TerminalTask, goal_text, read_goal

_SYSTEMS = {"linux": "Linux", "mac": "macOS", "windows": "Windows"}


@dataclass(slots=True)
class TerminalView:
    """How a task stands."""

    task: TerminalTask
    max_turns: int
    prompt: str
    turn: int = 0
    """Turns used so far."""
    last: Result | None = None
    """What came of the last line."""


class NaturalTerminal:
    """Full sentences, output and prompt as a terminal shows them."""

    def rules(self, max_turns: int) -> str:
        """System text."""
        aliases = ", ".join(f"{alias} for {name}" for alias, name in ALIASES.items())
        return (
            "You work at a terminal of a local machine that can reach one remote Linux host. Bring about what the task asks "
            "for; nothing else is judged.\n\n"
            f"Commands: {' '.join(COMMANDS)}; also {aliases}. Not every system has all of them, and a site may have ways of its "
            "own, which you find out by trying; what holds at this site may hold in related tasks, too.\n"
            f"A line may hold up to {MOST_COMMANDS} commands joined by && (stops at the first failure) or ;. Quotes, variables "
            "and the patterns * ? [..] work; pipes and redirects do not. ssh takes you to the remote host, exit back; scp and "
            "rsync work from the local machine.\n\n"
            f"You have {max_turns} steps, one command line each.\n\n"
            "Answer with brief reasoning, then exactly one command line in this form:\n<answer>command line</answer>"
        )

    def observation(self, view: TerminalView) -> str:
        """What is seen before a command line."""
        parts: list[str] = []
        task = view.task
        if view.last is not None:
            parts.append(_result_text(view.last))
        else:
            parts.append(
                f"Local machine: {_SYSTEMS[task.site.system]}. Remote host: {task.site.host}, account {task.site.user}, keys are "
                f"set up.\nTask: {goal_text(task)}"
            )
        parts.append(f"Step {view.turn + 1} of {view.max_turns}.\n{clean(view.prompt[:-1])}{view.prompt[-1:]}")
        return "\n".join(parts)

    def feedback(self, outcome: str, view: TerminalView, reason: str) -> str:
        """Words after the task; outcome is win, late or malformed, and reason what is wrong, if it may be shown."""
        because = f": {reason}" if reason else ""
        ending = {
            "win": f"The task is done, after {view.turn} of {view.max_turns} steps.",
            "late": f"You have no steps left ({view.turn} of {view.max_turns}), and the goal is not reached{because}.",
            "malformed": f"Your answer could not be read: {reason}. {_FORM} The task is over.",
        }[outcome]
        return ending if outcome == "malformed" or view.last is None else f"{_result_text(view.last, 700)}\n{ending}"


_FORM = "Expected one command line as <answer>command line</answer>."


def _result_text(result: Result, most: int = 4_000) -> str:
    output = clean(result.output, most)
    if not result.failed:
        ending = "Exit code 0."
    elif result.count == 1:
        ending = f"Exit code {result.code}."
    else:
        ending = f"Exit code {result.code}; command {result.failed} of {result.count} failed."
    return f"Output:\n{output}\n{ending}" if output else f"No output.\n{ending}"


def read_view(first: str) -> TaskText:
    """What the first observation of a task states."""
    match = re.match(
        r"Local machine: (\w+)\. Remote host: ([\d.]+), account (\w+), keys are set up\.\nTask: (.*)\n", first
    )
    assert match is not None, "this is no first observation"
    kind, parts = read_goal(match[4])
    system = next(name for name, shown in _SYSTEMS.items() if shown == match[1])
    return TaskText(system, match[2], match[3], kind, parts)


def view_of(task: TerminalTask) -> TaskText:
    """As read from the task's text."""
    kind, parts = read_goal(goal_text(task))
    return TaskText(task.site.system, task.site.host, task.site.user, kind, parts)
