"""Play at the terminal: in command lines, and in words of the compact form.

The natural players keep their memory in their own words: every response says what is believed and what each command of
the line is for, and the next turn reads that and the output.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from cod_lightning.envs.known_ways import WaysPlay
from cod_lightning.envs.players import Play
from cod_lightning.envs.terminal import compact
from cod_lightning.envs.terminal.learning import HOME, Outcome, last_known, learn, look_home, respond, side_after
from cod_lightning.envs.terminal.plans import LOCAL, REMOTE, enter, next_commands, plan
from cod_lightning.envs.terminal.quirks import SLOTS, Quirks, Site, read_facts, with_quirks, write_facts
from cod_lightning.envs.terminal.wording import read_view
from cod_lightning.types import Message


def play_of(fused: bool, most: int, site: Site) -> tuple[Play[Any], Any]:
    """How to play at that site, and its hidden facts; `fused` for the compact form, `most` commands in a line."""
    if fused:
        return WordPlay(), compact.Known(dict.fromkeys(compact.ways_of(site).values(), True))
    return ShellPlay(most, site), site.quirks


@dataclass(frozen=True)
class ShellPlay(Play[Quirks]):
    """Tries the usual way, reads the error, looks where that points, goes on another way, and notes what it found.

    The context counts at a task's first turn; later turns go on from the player's own words.
    """

    most: int
    site: Site

    @property
    def nothing(self) -> Quirks:
        return Quirks()

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Any usual command with places that the task names."""
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
            believed, look = learn(view, last_known(said.content), outcome, side)
            if HOME in finished:
                done -= {step.name for step in plan(view, believed) if step.side == LOCAL}
        if look is None and (commands := next_commands(view, believed, done, side, self.most)):
            return respond(believed, commands)
        step = look or look_home(view)
        visit = [(step.name, step.command)]
        if step.side != side:
            visit.insert(0, ("enter", enter(view, believed)) if step.side == REMOTE else ("leave", "exit"))
        return respond(believed, visit[-self.most :])

    def recorded(self, messages: Sequence[Message]) -> Quirks:
        """The last response's beliefs and what came after it, or the old notes."""
        text = "\n".join(message.content for message in messages)
        before, _, after = text.rpartition("</answer>")
        first = re.search(r"^Local machine: .*\nTask: .*\n", text, re.MULTILINE)
        if not first or "I run:" not in before:
            return read_facts(text)
        return learn(read_view(first[0]), last_known(before), Outcome.of(before, after), LOCAL)[0]

    def noisy(self, facts: Quirks, accuracy: float, rng: random.Random) -> Quirks:
        wild = with_quirks(self.site, rng, len(SLOTS), random_labels=False).quirks
        wrong = [slot for slot in SLOTS if rng.random() >= accuracy]
        return replace(facts, **{slot: rng.choice((getattr(wild, slot), "")) for slot in wrong})

    def write(self, facts: Quirks, messages: Sequence[Message] = ()) -> str:
        return write_facts(facts) or "- Nothing special is known."

    def blank(self, messages: Sequence[Message]) -> str:
        return "- Nothing is known."


class WordPlay(WaysPlay):
    """Play in fused words; Bayes-optimal in each task where 3 quirks are drawn."""

    kind: ClassVar = compact.Known

    @staticmethod
    def slot(messages: Sequence[Message]) -> str:
        """The operation that the goal needs."""
        return compact.SLOT_OF[messages[1].content.removeprefix("goal=")]

    @staticmethod
    def respond(slot: str, way: str) -> str:
        """The operation as a thought, then the answer."""
        return f"{slot} <answer>{way}</answer>"
