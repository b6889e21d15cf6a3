"""Two renderings of a house: TextWorld's own text for language models, fused words for tiny policies."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from cod_lightning.envs.base import Unchanging
from cod_lightning.envs.facts import UNKNOWN
from cod_lightning.envs.textworld.games import command_of, names
from cod_lightning.envs.textworld.houses import DIRECTIONS, HERE, Deed, HouseSpec

Places = Mapping[str, str]
"""Routes, as in `north.east`, by the label of a thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HouseView:
    """All that a rendering may show."""

    wanted: str
    """Label of the thing that is sought."""
    commands: tuple[str, ...]
    """What can be done."""
    text: str
    """What the interpreter shows; empty in compact form."""
    understood: bool
    """Whether the last command was one that can be carried out here."""
    turn: int
    """Commands so far."""
    max_turns: int
    seen: Places
    """Things that were seen in this task."""


class _HouseWords(Unchanging, ABC):
    """What both renderings share."""

    @abstractmethod
    def taken(self, command: str) -> str | None:
        """The label of what the command takes, if it takes anything."""

    def direction(self, command: str) -> str | None:
        """Where the command goes, if it goes anywhere."""
        verb, _, where = command.replace("_", " ").partition(" ")
        return where if verb == "go" and where in DIRECTIONS else None

    def unlocks(self, command: str) -> bool:
        """Whether the command opens or unlocks something, or takes a key."""
        return command.startswith(("open", "unlock")) or bool(re.search(r"key|pass|k_\d", self.taken(command) or ""))


class CompactHouse(_HouseWords):
    """`want=f_0 go_north go_east`, at the end `win f_0=north o_1=here`; answers are single words.

    Args:
        things: All that can be sought.
        holders: All that can be opened, doors apart.
    """

    def __init__(self, things: tuple[str, ...], holders: tuple[str, ...]) -> None:
        self.things, self.holders = things, holders
        self._routes = (HERE, *DIRECTIONS)
        whats = [f"go_{one}" for one in DIRECTIONS] + [f"open_{one}" for one in (*DIRECTIONS, *holders)]
        self.all_commands = (*whats, *(f"take_{one}" for one in things))

    def rules(self, max_turns: int) -> str:
        return "house"

    def label(self, spec: HouseSpec, thing: str) -> str:
        return thing

    def command(self, spec: HouseSpec, deed: Deed) -> str:
        return f"{deed.verb}_{deed.what}"

    def observation(self, view: HouseView) -> str:
        first = f"want={view.wanted}" if not view.turn else "" if view.understood else "no"
        return " ".join(filter(None, (first, *view.commands)))

    def feedback(self, outcome: str, view: HouseView, complaint: str) -> str:
        return " ".join([outcome, *(f"{thing}={route}" for thing, route in view.seen.items())])

    def wanted(self, first: str) -> str:
        return first.partition(" ")[0].removeprefix("want=")

    def commands(self, observation: str) -> list[str]:
        return [word for word in observation.split() if word in self.all_commands]

    def taken(self, command: str) -> str | None:
        return command.removeprefix("take_") if command.startswith("take_") else None

    def respond(self, wanted: str, route: str | None, command: str) -> str:
        return f"{route or UNKNOWN} <answer>{command}</answer>"

    def places(self, text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for thing, route in re.findall(r"(?<!\S)([a-z]_\d)=(\w+)(?!\S)", text, flags=re.ASCII):
            if thing in self.things and route in self._routes:
                found.pop(thing, None)
                found[thing] = route
        return found

    def write(self, places: Places) -> str:
        return " ".join(f"{thing}={places.get(thing, UNKNOWN)}" for thing in self.things)

    def words(self) -> tuple[str, ...]:
        facts = tuple(f"{thing}={route}" for thing in self.things for route in (*self._routes, UNKNOWN))
        answers = tuple(f"<answer>{command}</answer>" for command in self.all_commands)
        wanted = tuple(f"want={thing}" for thing in self.things)
        ends = ("win", "late", "malformed", "no")
        return ("house", *wanted, *self.all_commands, *facts, *answers, *self._routes, UNKNOWN, *ends)


class NaturalHouse(_HouseWords):
    """TextWorld's own text, and what can be done."""

    def rules(self, max_turns: int) -> str:
        """System text."""
        return (
            "You are in a house of a text game (TextWorld). In each task you begin in the same room and are to take one thing; a "
            "reward of 1 if you do, 0 if not. Where things are, what is closed or locked, and which key fits is hidden. All is "
            "the same at the beginning of each task, so what you find out may help later.\n\n"
            f"You have {max_turns} commands. The useful ones are listed; others that the game knows (look, examine, drop, ...) "
            "count, too.\n\nAnswer with brief reasoning, then exactly one command in this form:\n<answer>COMMAND</answer>"
        )

    def label(self, spec: HouseSpec, thing: str) -> str:
        """What a thing is called."""
        return names(spec)[thing]

    def command(self, spec: HouseSpec, deed: Deed) -> str:
        """How a deed is spelled."""
        return command_of(spec, deed.action)

    def observation(self, view: HouseView) -> str:
        """What is seen before a command."""
        said = view.text if view.understood else "The game knows no such command here."
        asked = f"Command {view.turn + 1} of {view.max_turns}. Take the {view.wanted}."
        return f"{said}\n\n{asked}\nYou can: {'; '.join(view.commands)}."

    def feedback(self, outcome: str, view: HouseView, complaint: str) -> str:
        """Words after the task, and the way to all things that were seen; outcome is win, late or malformed."""
        ending = {
            "win": f"You have the {view.wanted}, with {view.turn} of {view.max_turns} commands.",
            "late": f"You have no commands left; you were to take the {view.wanted}.",
            "malformed": f"Your answer could not be read: {complaint}. Expected one <answer>COMMAND</answer>. The task is over.",
        }[outcome]
        return f"{ending}\nSeen, from where you begin:\n{self.write(view.seen)}" if view.seen else ending

    def wanted(self, first: str) -> str:
        """The label of what is sought, read back from the first observation."""
        return first.rpartition(" Take the ")[2].partition(".\n")[0]

    def commands(self, observation: str) -> list[str]:
        """What can be done, read back."""
        return observation.rpartition("\nYou can: ")[2].removesuffix(".").split("; ")

    def taken(self, command: str) -> str | None:
        match = re.fullmatch(r"take (.+?)(?: from .+)?", command)
        return match[1] if match else None

    def respond(self, wanted: str, route: str | None, command: str) -> str:
        """A well-formed response: where the wanted thing is thought to be, then the command."""
        where = f"The {wanted} is at: {self._way(route)}." if route else f"I do not know where the {wanted} is."
        return f"{where} <answer>{command}</answer>"

    def places(self, text: str) -> dict[str, str]:
        """Stated places; the last statement about a thing wins."""
        found: dict[str, str] = {}
        step = f"go (?:{'|'.join(DIRECTIONS)})"
        for thing, way in re.findall(rf"^- ([^:\n]+): (this room|{step}(?:, {step})*)$", text, flags=re.MULTILINE):
            found.pop(thing, None)
            found[thing] = HERE if way == "this room" else way.replace("go ", "").replace(", ", ".")
        return found

    def write(self, places: Places) -> str:
        """A context that states these places."""
        return "\n".join(f"- {thing}: {self._way(route)}" for thing, route in places.items()) or "- nothing seen yet"

    def _way(self, route: str | None) -> str:
        """`go north, go east`."""
        return ", ".join(f"go {one}" for one in route.split(".")) if route and route != HERE else "this room"


HouseWording = NaturalHouse | CompactHouse
"""How a house is put into words."""
