"""Reading the options of a command."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from cod_lightning.envs.terminal.machine import Machine, ShellError
from cod_lightning.envs.terminal.quirks import Site

MOST_COMMANDS = 8
"""That one line may hold."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a line printed, its exit code, and where it failed."""

    output: str
    code: int
    failed: int = 0
    """1-based number of the last command that failed; 0 if none did."""
    count: int = 1
    """Commands in the line."""


@dataclass(slots=True)
class Session(ABC):
    """Machines, the chain of sessions (the last one is the present one), and the last exit code."""

    site: Site
    local: Machine
    remote: Machine
    gateway: Machine | None
    sessions: list[Machine] = field(default_factory=list)
    code: int = 0
    budget: int = 0
    """Commands that this line may still run, commands after ssh included."""

    @property
    def here(self) -> Machine:
        """The machine that commands act on."""
        return self.sessions[-1] if self.sessions else self.local

    @abstractmethod
    def run_part(self, line: str) -> Result:
        """Run a line within the budget; also the command after ssh."""


_LONG = {
    "--recursive": "r",
    "--parents": "p",
    "--force": "f",
    "--all": "a",
    "--archive": "a",
    "--verbose": "v",
    "--keep": "k",
    "--compress": "z",
    "--quiet": "q",
}


def options(
    here: Machine, name: str, arguments: list[str], allowed: str, slashed: str = "", valued: str = "", least: int = 0
) -> tuple[set[str], dict[str, str], list[str]]:
    """(flags, values of options that take one, operands, at least so many).

    Flags may be joined (`-rf`); `slashed` ones are written `/q` on Windows; `--` ends the options.
    """
    flags: set[str] = set()
    values: dict[str, str] = {}
    operands: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            operands += rest
        elif here.windows and re.fullmatch(r"/[a-zA-Z]", argument) and argument[1].lower() in slashed:
            flags.add(argument[1].lower())
        elif argument.startswith("--"):
            if _LONG.get(argument, "-") not in allowed:
                raise ShellError(f"{name}: unrecognized option '{argument[:40]}'", 2)
            flags.add(_LONG[argument])
        elif argument.startswith("-") and len(argument) > 1:
            for n, letter in enumerate(argument[1:], start=2):
                if letter in valued:
                    value = argument[n:] or next(rest, "")
                    if not value:
                        raise ShellError(f"{name}: option requires an argument -- '{letter}'", 2)
                    values[letter] = value
                    break
                if letter not in allowed:
                    raise ShellError(f"{name}: invalid option -- '{letter}'", 2)
                flags.add(letter)
        else:
            operands.append(argument)
    if len(operands) < least:
        raise ShellError("The syntax of the command is incorrect." if here.windows else f"{name}: missing operand")
    return flags, values, operands
