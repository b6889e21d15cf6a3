"""A shell: command lines, read and run on the machine of the present session."""

from collections.abc import Sequence
from dataclasses import replace

from cod_lightning.envs.terminal.commands import HANDLERS
from cod_lightning.envs.terminal.machine import MANAGED, MOST_LOOKS, ShellError
from cod_lightning.envs.terminal.options import MOST_COMMANDS, Result, Session
from cod_lightning.envs.terminal.parser import ShellCommand, expand, parse

ALIASES = {"dir": "ls", "type": "cat", "copy": "cp", "move": "mv", "ren": "mv", "rename": "mv", "del": "rm"}
COMMANDS = tuple(HANDLERS)
NOT_ON_WINDOWS = frozenset({"chmod", "touch", "rsync", "tar", "gzip", "gunzip"})
MOST_OUTPUT = 3_000
MOST_ARGUMENTS = 200


class Shell(Session):
    """Runs command lines."""

    def run(self, line: str) -> Result:
        """Run a line, whatever it is; the work is bounded."""
        for machine in filter(None, (self.local, self.remote, self.gateway)):
            machine.patience = MOST_LOOKS
        self.budget = MOST_COMMANDS
        return self.run_part(line)

    def run_part(self, line: str) -> Result:
        """Run a line within the budget; each command is read in the style of the machine that it runs on."""
        try:
            commands = list(parse(line, windows=self.here.windows))
            if len(commands) > self.budget:
                raise ShellError(f"shell: too many commands in one line (at most {MOST_COMMANDS})", 2)
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

    def _one(self, command: ShellCommand) -> tuple[str, int]:
        try:
            words: list[str] = []
            for word in command.words:
                words += expand(word, self.here, self.code)
                if len(words) > MOST_ARGUMENTS:
                    raise ShellError("shell: argument list too long", 2)
            if not words:
                return "", 0
            name, words = self._unmanaged([words[0].lower(), *words[1:]])
            if name not in HANDLERS or (self.here.windows and name in NOT_ON_WINDOWS):
                raise self.not_found(name)
            return HANDLERS[name](self, words), 0
        except ShellError as error:
            return error.message, error.code

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
            command = "an internal or external command,\noperable program or batch file."
            return ShellError(f"'{name}' is not recognized as {command}")
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


def _again(rest: str, windows: bool, before: Sequence[ShellCommand]) -> list[ShellCommand]:
    """The commands that follow, read anew in the style of another system; no more of them than there were."""
    first, *others = parse(rest, windows=windows)
    return [replace(first, joint=before[0].joint), *others][: len(before)]
