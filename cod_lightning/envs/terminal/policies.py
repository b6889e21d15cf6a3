"""Play at the terminal.

Players keep their memory in their own words: every response says what is believed and what each command of the line is for, and
the next turn reads that and the output.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cod_lightning.envs.players import Play
from cod_lightning.envs.terminal.options import MOST_COMMANDS
from cod_lightning.envs.terminal.plans import LOCAL, REMOTE, Step, TaskText, enter, next_commands, plan
from cod_lightning.envs.terminal.quirks import SLOTS, Quirks, Site, homes, read_facts, with_quirks, write_facts
from cod_lightning.envs.terminal.transfer import KNOWN_HOSTS, MOUNTS, SERVER
from cod_lightning.envs.terminal.wording import read_view
from cod_lightning.types import Message

KNOWN = "What I know here:"
_RUNS = re.compile(r"^I run: (.*)\.$", re.MULTILINE)
ENTER, LEAVE = "enter", "leave"
LOOKS = ("look for a route", "look for tools", "look for a mount", "look for a drop folder", "look for the home")
ROUTE, TOOLS, MOUNT, DROP, HOME = LOOKS
_NEVER_FOUND = "nothing special"


def respond(believed: Quirks, commands: Sequence[tuple[str, str]]) -> str:
    """What is believed, what the commands are for, and the line: all that the next turn needs to know."""
    names = ", ".join(name for name, _ in commands)
    line = " && ".join(command for _, command in commands)
    return f"{KNOWN}\n{write_facts(believed) or _NEVER_FOUND}\nI run: {names}.\n<answer>{line}</answer>"


def last_known(text: str) -> Quirks:
    """Facts after the last mention of what is known."""
    return read_facts(text.rpartition(KNOWN)[2])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a line did, as its response and the next observation show."""

    names: tuple[str, ...]
    succeeded: int
    output: str

    @classmethod
    def of(cls, response: str, observed: str) -> "Outcome":
        """Read both texts."""
        found = _RUNS.findall(response)
        names = tuple(found[-1].split(", ")) if found else ()
        failure = re.search(r"^Exit code (\d+)(?:; command (\d+) of \d+ failed)?\.$", observed, re.MULTILINE)
        succeeded = len(names) if failure is None or failure[1] == "0" else int(failure[2] or 1) - 1
        printed = re.search(r"^Output:\n(.*?)\nExit code", observed, re.MULTILINE | re.DOTALL)
        lines = printed[1].splitlines() if printed else []
        output = "\n".join(line for line in lines if not re.fullmatch(r"Connection to \S+ closed\.", line))
        return cls(names, succeeded, output)

    @property
    def failed(self) -> str:
        """Name of the command that failed, or nothing."""
        return self.names[self.succeeded] if self.succeeded < len(self.names) else ""


def side_after(side: str, outcome: Outcome) -> str:
    """The side of the session after that line."""
    for name in outcome.names[: outcome.succeeded]:
        side = {ENTER: REMOTE, LEAVE: LOCAL}.get(name, side)
    return side


def learn(view: TaskText, believed: Quirks, outcome: Outcome, side: str) -> tuple[Quirks, Step | None]:
    """The new belief, and where to look before the plan goes on."""
    if not outcome.failed:
        return _looked(view, believed, outcome), None
    printed, failed = outcome.output, outcome.failed
    if re.search(r"Could not resolve|timed out|Connection refused", printed):
        where = KNOWN_HOSTS[view.system]
        return replace(believed, route=""), Step(ROUTE, LOCAL, f"cat {where}")
    if "Permission denied (publickey)" in printed:
        return replace(believed, login=_next_account(believed, printed)), None
    if failed in ("push", "push to drop", "pull") and re.search(
        r"subsystem|scp: command not|rsync: command not|'rsync' is not|command not found: rsync", printed
    ):
        return replace(believed, transfer=_next_transfer(view, believed)), None
    if "own tools are in" in printed:
        where = "C:\\Tools" if "C:\\Tools" in printed else "/usr/local/bin"
        return replace(believed, tools=""), Step(TOOLS, side, f"ls {where}")
    if "command not found" in printed or "is not recognized" in printed:
        return replace(believed, tools=""), None
    if "Read-only" in printed:
        return believed, Step(MOUNT, REMOTE, f"cat {MOUNTS}")
    if "transfers are confined" in printed:
        return believed, Step(DROP, REMOTE, f"cat {SERVER}")
    nowhere = believed.home or ("C:\\Windows\\Temp" if view.system == "windows" else "/tmp")
    if nowhere in printed:
        return replace(believed, home=""), look_home(view)
    if believed.place:
        return replace(believed, place=""), None
    return Quirks(), None


def look_home(view: TaskText) -> Step:
    """Where homes lie."""
    return Step(HOME, LOCAL, f"ls {homes(view.system)}")


def _next_account(believed: Quirks, printed: str) -> str:
    named = re.search(r"Accounts on this host: ([\w, ]+)\.", printed)
    if named is None:
        return ""
    accounts = named[1].split(", ")
    tried = accounts.index(believed.login) if believed.login in accounts else -1
    return accounts[(tried + 1) % len(accounts)]


def _next_transfer(view: TaskText, believed: Quirks) -> str:
    ways = ("", "scp -O") if view.system == "windows" else ("", "rsync", "scp -O")
    tried = ways.index(believed.transfer) if believed.transfer in ways else 0
    return ways[(tried + 1) % len(ways)]


def _looked(view: TaskText, believed: Quirks, outcome: Outcome) -> Quirks:
    """Facts that the last look found."""
    look = outcome.names[-1] if outcome.names else ""
    lines = outcome.output.splitlines()
    if look == ROUTE:
        for line in lines:
            first = line.split(" ")[0]
            if first.startswith("["):
                return replace(believed, route=f"port {first.rpartition(':')[2]}")
            if first != view.host:
                return replace(believed, route=f"jump {first}")
    elif look == TOOLS and lines:
        name = lines[0].strip("/")
        return replace(believed, tools=name[: name.index("-") + 1] if "-" in name else name)
    elif look == MOUNT and (found := re.search(r"^(/\S+) \S+ none bind,ro", outcome.output, re.MULTILINE)):
        return replace(believed, place=f"mount {found[1]}")
    elif look == DROP and (found := re.search(r"internal-sftp -d (\S+)", outcome.output)):
        return replace(believed, place=f"drop {found[1]}")
    elif look == HOME and lines:
        return replace(believed, home=homes(view.system) + lines[0].strip("/"))
    return believed


@dataclass(frozen=True)
class ShellPlay(Play[Quirks]):
    """Tries the usual way, reads the error, looks where that points, goes on another way, and notes what it found.

    The context counts at a task's first turn; later turns go on from the player's own words.
    """

    site: Site

    @property
    def nothing(self) -> Quirks:
        return Quirks()

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        task = messages[1].content.partition("Task: ")[2].partition("\n")[0]
        places = re.findall(r"[\w%~.-]*[\\/][\w./\\-]*\w", task) or ["."]
        name = rng.choice(("ls", "cat", "cp", "mv", "rm", "mkdir -p", "scp", "tar -xf", "unzip", "touch", "cd"))
        if name in ("cp", "mv", "scp"):
            return f"<answer>{name} {rng.choice(places)} {rng.choice(places)}</answer>"
        return f"<answer>{name} {rng.choice(places)}</answer>"

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> Quirks:
        return read_facts(messages[0].content) if trust_context else Quirks()

    def answer(self, messages: Sequence[Message], known: Quirks, rng: random.Random) -> str:
        """The context is believed at the first turn, later what the last response says."""
        view = read_view(messages[1].content)
        believed, side, done, look = known, LOCAL, set[str](), None
        for said, seen in zip(messages[2::2], messages[3::2], strict=True):
            outcome = Outcome.of(said.content, seen.content)
            side = side_after(side, outcome)
            finished = outcome.names[: outcome.succeeded]
            done |= set(finished)
            on_the_way = look if finished in ((ENTER,), (LEAVE,)) else None
            believed, look = learn(view, last_known(said.content), outcome, side)
            look = look or on_the_way
            if HOME in finished:
                done -= {step.name for step in plan(view, believed) if step.side == LOCAL}
        if look is None and (commands := next_commands(view, believed, done, side)):
            return respond(believed, commands[:MOST_COMMANDS])
        step = look or look_home(view)
        visit = [(step.name, step.command)]
        if step.side != side:
            visit.insert(0, (ENTER, enter(view, believed)) if step.side == REMOTE else (LEAVE, "exit"))
        return respond(believed, visit)

    def recorded(self, messages: Sequence[Message]) -> Quirks:
        """The last response's beliefs and what came after it, or the old notes."""
        text = "\n".join(message.content for message in messages)
        before, _, after = text.rpartition("</answer>")
        first = re.search(r"^Local machine: .*\nTask: .*\n", text, re.MULTILINE)
        if not first or "I run:" not in before:
            return read_facts(text)
        return learn(read_view(first[0]), last_known(before), Outcome.of(before, after), LOCAL)[0]

    def noisy(self, facts: Quirks, accuracy: float, rng: random.Random) -> Quirks:
        wild = with_quirks(self.site, rng, len(SLOTS)).quirks
        wrong = [slot for slot in SLOTS if rng.random() >= accuracy]
        return replace(facts, **{slot: rng.choice((getattr(wild, slot), "")) for slot in wrong})

    def write(self, facts: Quirks, messages: Sequence[Message] = ()) -> str:
        return write_facts(facts) or "- Nothing special is known."

    def blank(self, messages: Sequence[Message]) -> str:
        return "- Nothing is known."
