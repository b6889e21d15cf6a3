"""A session: the machine one is on, and running a command line there."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cod_lightning.envs.terminal.machine import MANAGED, MOST_LOOKS, Machine, ShellError
from cod_lightning.envs.terminal.parser import Command, expand, parse
from cod_lightning.envs.terminal.quirks import Site

ALIASES = {"dir": "ls", "type": "cat", "copy": "cp", "move": "mv", "ren": "mv", "rename": "mv", "del": "rm"}
COMMANDS = (
    "ls", "cd", "pwd", "cat", "mkdir", "chmod", "cp", "mv", "rm", "touch", "echo", "whoami", "ssh", "exit", "scp", "rsync", "tar",
    "zip", "unzip", "gzip", "gunzip",
)  # fmt: skip
NOT_ON_WINDOWS = frozenset({"chmod", "touch", "rsync", "tar", "gzip", "gunzip"})
MOST_OUTPUT = 3_000
MOST_ARGUMENTS = 200


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
class Shell:
    """Machines, the chain of sessions (the last one is where one is), and the last exit code."""

    site: Site
    local: Machine
    remote: Machine
    gateway: Machine | None
    max_commands: int = 8
    sessions: list[Machine] = field(default_factory=list)
    code: int = 0
    budget: int = 0
    """Commands that this line may still run, commands given to ssh included."""

    @property
    def here(self) -> Machine:
        """The machine that commands act on."""
        return self.sessions[-1] if self.sessions else self.local

    def run(self, line: str) -> Result:
        """Run a line, whatever it is; the work is bounded."""
        for machine in (self.local, self.remote):
            machine.patience = MOST_LOOKS
        self.budget = self.max_commands
        return self.run_part(line)

    def run_part(self, line: str) -> Result:
        """Run a line within the budget; also what ssh is told to run. Each command is read in the style of the machine that it
        runs on."""
        try:
            commands = list(parse(line, windows=self.here.windows))
            if len(commands) > self.budget:
                raise ShellError(f"shell: too many commands in one line (at most {self.max_commands})", 2)
        except ShellError as error:
            self.code = error.code
            return Result(error.message, error.code, 1, 1)
        self.budget -= len(commands)
        printed: list[str] = []
        failed, number, start, windows = 0, 0, 0, self.here.windows
        while number < len(commands):
            if self.here.windows != windows:
                start, windows = start + commands[number - 1].rest, self.here.windows
                try:
                    commands[number:] = _again(line[start:], windows, commands[number:])
                except ShellError as error:
                    printed.append(error.message)
                    self.code, failed = error.code, number + 1
                    break
            command = commands[number]
            number += 1
            if command.joint == "&&" and self.code:
                continue
            output, self.code = self._one(command)
            failed = number if self.code else failed
            if output:
                printed.append(output)
        count = len(commands)
        text = "\n".join(printed)
        return Result(text[:MOST_OUTPUT] + ("\n..." if len(text) > MOST_OUTPUT else ""), self.code, failed, count)

    def _one(self, command: Command) -> tuple[str, int]:
        try:
            words: list[str] = []
            for word in command.words:
                words += expand(word, self.here, self.code)
                if len(words) > MOST_ARGUMENTS:
                    raise ShellError("shell: argument list too long", 2)
            return self._execute(words), 0
        except ShellError as error:
            return error.message, error.code

    def _execute(self, words: list[str]) -> str:
        from cod_lightning.envs.terminal.commands import HANDLERS  # handlers know the shell's type

        if not words:
            return ""
        name, words = self._unmanaged([words[0].lower(), *words[1:]])
        if name not in HANDLERS or (self.here.windows and name in NOT_ON_WINDOWS):
            raise self.not_found(name)
        return HANDLERS[name](self, words)

    def _unmanaged(self, words: list[str]) -> tuple[str, list[str]]:
        """The command and its arguments, with the site's own names put back."""
        here, first = self.here, words[0]
        prefix = here.prefix
        called = first
        if prefix.endswith("-") and first.startswith(prefix):
            called = ALIASES.get(first.removeprefix(prefix), first.removeprefix(prefix))
        elif prefix and first == prefix and len(words) > 1:
            called, words = ALIASES.get(words[1].lower(), words[1].lower()), words[1:]
        if called != first:
            if called not in MANAGED:
                raise self.not_found(first)
            return called, words[1:]
        name = ALIASES.get(first, first)
        if prefix and name in MANAGED:
            where = "C:\\Tools" if here.windows else "/usr/local/bin"
            shell = "" if here.windows else "zsh: " if here.system == "mac" else "bash: "
            raise ShellError(f"{shell}{first}: Permission denied (this site's own tools are in {where})", 126)
        return name, words[1:]

    def not_found(self, name: str) -> ShellError:
        """In the style of the system's shell."""
        name = name[:60]
        if self.here.windows:
            return ShellError(
                f"'{name}' is not recognized as an internal or external command,\noperable program or batch file.", 1
            )
        text = f"zsh: command not found: {name}" if self.here.system == "mac" else f"bash: {name}: command not found"
        return ShellError(text, 127)

    def prompt(self) -> str:
        """As the system shows it."""
        here = self.here
        if here.windows:
            return f"{here.spell(here.cwd)}>"
        inside = here.cwd[: len(here.home)] == here.home
        shown = "/".join(("~", *here.cwd[len(here.home) :])) if inside else here.spell(here.cwd)
        if here.system == "mac":
            return f"{here.user}@{here.name} {shown} %"
        return f"{here.user}@{here.name}:{shown}$"


def _again(rest: str, windows: bool, before: Sequence[Command]) -> list[Command]:
    """The commands that follow, read anew in the style of another system; no more of them than there were."""
    first, *others = parse(rest, windows=windows)
    return [replace(first, joint=before[0].joint), *others][: len(before)]
