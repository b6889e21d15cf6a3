"""Who works at the terminal without a model: at random, with perfect memory, or as a teacher that knows the quirks.

The natural players keep their memory in their own words: every response says what is believed and what each command of
the line is for, and the next turn reads that and the output.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cod_lightning.envs.base import Demonstrator, Reference, TextPolicy
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.terminal import compact
from cod_lightning.envs.terminal.learning import HOME, Outcome, last_known, learn, look_home, respond, side_after
from cod_lightning.envs.terminal.plans import LOCAL, REMOTE, Step, View, enter, next_commands, plan
from cod_lightning.envs.terminal.quirks import SLOTS, Quirks, Site, read_facts, with_quirks, write_facts
from cod_lightning.envs.terminal.wording import read_view
from cod_lightning.types import Message


def reference(kind: Reference, fused: bool, most: int, sites: Sequence[Site]) -> TextPolicy:
    """The reference of that kind; `fused` for the compact form, `most` commands in a line."""
    if fused:
        truth = compact.ways_of(sites[0])
        return {
            Reference.RANDOM: CompactRandom(),
            Reference.SCRIPTED: CompactScripted(),
            Reference.ORACLE: CompactOracle(truth),
        }[kind]
    return {
        Reference.RANDOM: RandomShellPolicy(),
        Reference.SCRIPTED: ScriptedShellPolicy(most),
        Reference.ORACLE: ShellOracle(most, sites[0].quirks),
    }[kind]


def demonstrator(fused: bool, most: int, sites: Sequence[Site], dials: TeacherDials) -> Demonstrator:
    """The teacher."""
    return CompactTeacher(compact.ways_of(sites[0]), dials) if fused else ShellTeacher(most, sites[0], dials)


# ---------------------------------------------------------------------- sentences


@dataclass(frozen=True)
class RandomShellPolicy(TextPolicy):
    """Any usual command with places that the task names; notes nothing."""

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        task = messages[1].content.partition("Task: ")[2].partition("\n")[0]
        places = re.findall(r"[\w%~.-]*[\\/][\w./\\-]*\w", task) or ["."]
        name = rng.choice(("ls", "cat", "cp", "mv", "rm", "mkdir -p", "scp", "tar -xf", "unzip", "touch", "cd"))
        if name in ("cp", "mv", "scp"):
            return f"<answer>{name} {rng.choice(places)} {rng.choice(places)}</answer>"
        return f"<answer>{name} {rng.choice(places)}</answer>"

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return "- Nothing is known."


@dataclass(frozen=True)
class ScriptedShellPolicy(TextPolicy):
    """Tries the usual way, reads the error, looks where that points, goes on another way, and notes what it found."""

    most: int

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return next_line(messages, self.most, read_facts(messages[0].content))

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """What was believed last, and what the end told."""
        return _noted(recorded(messages))


@dataclass(frozen=True)
class ShellOracle(TextPolicy):
    """Knows the quirks."""

    most: int
    truth: Quirks

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return next_line(messages, self.most, self.truth)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return _noted(self.truth)


@dataclass(frozen=True)
class ShellTeacher(Demonstrator):
    """Plays like the scripted policy, trusts the context in most tasks, and notes only part of what it found.

    Whether it trusts is drawn at a task's first turn; later turns go on from its own words.
    """

    most: int
    site: Site
    dials: TeacherDials

    def context(self, rng: random.Random) -> str:
        draw = rng.random()
        if draw < self.dials.context_true:
            return _noted(self._noisy(self.site.quirks, self.dials.context_accuracy, rng))
        if draw < self.dials.context_true + self.dials.context_junk:
            return _noted(self._noisy(Quirks(), 0.0, rng))
        return ""

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        trusting = rng.random() < self.dials.follow
        return next_line(messages, self.most, read_facts(messages[0].content) if trusting else Quirks())

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return _noted(self._noisy(recorded(messages), self.dials.note_accuracy, rng))

    def _noisy(self, facts: Quirks, accuracy: float, rng: random.Random) -> Quirks:
        wild = with_quirks(self.site, rng, len(SLOTS), random_labels=False).quirks
        wrong = [slot for slot in SLOTS if rng.random() >= accuracy]
        return replace(facts, **{slot: rng.choice((getattr(wild, slot), "")) for slot in wrong})


def next_line(messages: Sequence[Message], most: int, told: Quirks) -> str:
    """The response after this dialogue; `told` is believed at the first turn, later what the last response says."""
    view = read_view(messages[1].content)
    believed, side, done, look = told, LOCAL, set[str](), None
    for said, seen in zip(messages[2::2], messages[3::2], strict=True):
        outcome = Outcome.of(said.content, seen.content)
        side = side_after(side, outcome)
        finished = outcome.names[: outcome.succeeded]
        done |= set(finished)
        believed, look = learn(view, last_known(said.content), outcome, side)
        if HOME in finished:
            done -= {step.name for step in plan(view, believed) if step.side == LOCAL}
    if look is None and (commands := next_commands(view, believed, done, side, most)):
        return respond(believed, commands)
    return respond(believed, _visit(view, believed, look or look_home(view), side)[-most:])


def _visit(view: View, believed: Quirks, step: Step, side: str) -> list[tuple[str, str]]:
    way = [("enter", enter(view, believed)) if step.side == REMOTE else ("leave", "exit")] if step.side != side else []
    return [*way, (step.name, step.command)]


def recorded(messages: Sequence[Message]) -> Quirks:
    """What the dialogue of an update episode states: the last response's beliefs and what came after it, or the old notes."""
    text = "\n".join(message.content for message in messages)
    before, _, after = text.rpartition("</answer>")
    first = re.search(r"^Local machine: .*\nTask: .*\n", text, re.MULTILINE)
    if not first or "I run:" not in before:
        return read_facts(text)
    view = read_view(first[0])
    outcome = Outcome.of(before, after)
    believed, _ = learn(view, last_known(before), outcome, LOCAL)
    return believed


def _noted(facts: Quirks) -> str:
    return write_facts(facts) or "- Nothing special is known."


# ---------------------------------------------------------------------- fused words


@dataclass(frozen=True)
class CompactRandom(TextPolicy):
    """Any way of the needed operation; notes nothing."""

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return compact.respond(rng.choice(compact.WAYS[_slot(messages)]))

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return ""


@dataclass(frozen=True)
class CompactScripted(TextPolicy):
    """Perfect memory; Bayes-optimal in each task, since all ways not ruled out are equally likely (where 3 quirks are drawn)."""

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """The way that is known to work, else one that may."""
        return _choose(messages, compact.Known.read([m.content for m in (messages[0], *messages[2:])]), rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return compact.Known.read([m.content for m in messages]).write()


@dataclass(frozen=True)
class CompactOracle(TextPolicy):
    """Knows the ways."""

    truth: Mapping[str, str]

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return compact.respond(self.truth[_slot(messages)])

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return compact.Known(dict.fromkeys(self.truth.values(), True)).write()


@dataclass(frozen=True)
class CompactTeacher(Demonstrator):
    """Shows the protocol; notes only part of what it saw."""

    truth: Mapping[str, str]
    dials: TeacherDials

    def context(self, rng: random.Random) -> str:
        return compact.demonstrated(self.truth, self.dials, rng)

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        trusting = rng.random() < self.dials.follow
        shown = [m.content for m in ((messages[0],) if trusting else ())] + [m.content for m in messages[2:]]
        return _choose(messages, compact.Known.read(shown), rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return compact.noisy(compact.Known.read([m.content for m in messages]), self.dials.note_accuracy, rng).write()


def _slot(messages: Sequence[Message]) -> str:
    return compact.SLOT_OF[messages[1].content.removeprefix("goal=")]


def _choose(messages: Sequence[Message], known: compact.Known, rng: random.Random) -> str:
    slot = _slot(messages)
    return compact.respond(known.works(slot) or rng.choice(known.open(slot)))
