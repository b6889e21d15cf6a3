"""Command lines: quotes, escapes, `&&` and `;`, variables, patterns. Linear in the line, which is bounded before."""

import re
from dataclasses import dataclass

from cod_lightning.envs.terminal.machine import Machine, ShellError

MOST_WORDS = 64
Piece = tuple[str, bool, bool]
"""Text, whether patterns and `~` count in it, whether variables do."""
Word = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """Words, not yet expanded, and what came before them: `&&`, `;` or nothing."""

    words: tuple[Word, ...]
    joint: str
    rest: int
    """Where in the line the next command begins."""


_POSIX = re.compile(
    r"""(?P<space>[^\S\n\r]+)|(?P<joint>&&|;)|(?P<bad>[|<>&()`\n\r])|'(?P<single>[^']*)'"""
    r"""|"(?P<double>(?:[^"\\]|\\.)*)"|\\(?P<escape>.)|(?P<plain>[^\s'"\\;&|<>()`]+)|(?P<open>.)""",
    re.DOTALL,
)
_WINDOWS = re.compile(
    r"""(?P<space>[^\S\n\r]+)|(?P<joint>&&|[;&])|(?P<bad>[|<>()`\n\r])|'(?P<single>[^']*)'"""
    r"""|"(?P<double>[^"]*)"|\^(?P<escape>.)|(?P<plain>[^\s'"^;&|<>()`]+)|(?P<open>.)""",
    re.DOTALL,
)
_REFUSED = {
    "|": "pipes (|) are not available",
    **dict.fromkeys("<>", "redirects are not available"),
    "&": "background jobs (&) are not available",
    **dict.fromkeys("()", "subshells are not available"),
    "`": "command substitution is not available",
    **dict.fromkeys("\n\r", "one command line only; join commands by && or ;"),
}


def parse(line: str, *, windows: bool = False) -> tuple[ShellCommand, ...]:
    """Commands of a line.

    >>> [len(c.words) for c in parse("mkdir -p 'a b' && ls ; pwd")]
    [3, 1, 1]
    >>> parse("ls | wc")
    Traceback (most recent call last):
    cod_lightning.envs.terminal.machine.ShellError: shell: pipes (|) are not available
    """
    commands: list[ShellCommand] = []
    words: list[Word] = []
    pieces: list[Piece] = []
    joint = ""
    for match in (_WINDOWS if windows else _POSIX).finditer(line):
        kind, text = match.lastgroup, match[match.lastgroup or 0]
        if kind == "plain":
            pieces.append((text, True, True))
        elif kind == "single" or kind == "escape":
            pieces.append((text, False, False))
        elif kind == "double":
            pieces += _double(text, windows)
        elif kind == "bad":
            raise ShellError(f"shell: {_REFUSED[text]}", 2)
        elif kind == "open":
            raise ShellError("shell: unexpected end of line while looking for the matching quote", 2)
        else:
            if pieces:
                words.append(tuple(pieces))
                pieces = []
            if kind == "joint":
                commands.append(_command(words, joint, text, match.end()))
                words, joint = [], "&&" if text == "&&" else ";"
    if pieces:
        words.append(tuple(pieces))
    if words or joint == "&&" or not commands:
        commands.append(_command(words, joint, "end of line", len(line)))
    return tuple(commands)


def _command(words: list[Word], joint: str, at: str, rest: int) -> ShellCommand:
    if not words:
        raise ShellError(f"shell: syntax error near '{at}'", 2)
    if len(words) > MOST_WORDS:
        raise ShellError(f"shell: argument list too long (at most {MOST_WORDS} words)", 2)
    return ShellCommand(tuple(words), joint, rest)


def _double(text: str, windows: bool) -> list[Piece]:
    if "`" in text or "$(" in text:
        raise ShellError(f"shell: {_REFUSED['`']}", 2)
    if windows or "\\" not in text:
        return [(text, False, True)]
    parts = re.split(r'\\([\\"$])', text)
    return [(part, False, n % 2 == 0) for n, part in enumerate(parts)]


_ORDINARY = re.compile(r"[^~$%*?\[]+")


def expand(word: Word, machine: Machine, code: int = 0) -> list[str]:
    """What the word stands for on this machine: one text, or the paths that match it."""
    if len(word) == 1 and word[0][1] and _ORDINARY.fullmatch(word[0][0]):
        return [word[0][0]]
    shown, pattern, is_pattern = "", "", False
    for n, (text, bare, variables) in enumerate(word):
        if variables:
            text = _variables(text, machine, code)
        if n == 0 and bare and not machine.windows and re.match(r"~(/|$)", text):
            text = machine.spell(machine.home) + text[1:]
        shown += text
        pattern += text if bare else re.sub(r"([*?\[])", r"[\1]", text)
        is_pattern = is_pattern or (bare and bool(re.search(r"[*?\[]", text)))
    if is_pattern and len(shown) <= 400 and (found := machine.glob(pattern)):
        return found
    bare_only = all(bare for _, bare, _ in word)
    return [] if bare_only and not shown else [shown]


def _variables(text: str, machine: Machine, code: int) -> str:
    values = {
        **dict.fromkeys(("HOME", "USERPROFILE"), machine.spell(machine.home)),
        **dict.fromkeys(("USER", "USERNAME"), machine.user),
        **dict.fromkeys(("PWD", "CD"), machine.spell(machine.cwd)),
        **dict.fromkeys(("HOSTNAME", "COMPUTERNAME"), machine.name),
        "?": str(code),
    }
    if machine.windows:
        return re.sub(r"%(\w{1,40})%", lambda m: values.get(m[1].upper(), m[0]), text)
    return re.sub(r"\$(?:(\w{1,40}|\?)|\{(\w{1,40}|\?)\})", lambda m: values.get(m[1] or m[2], ""), text)
