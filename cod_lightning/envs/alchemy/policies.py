"""Who does alchemy without a model: at random, with perfect memory, or as a teacher that knows the recipes."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

from cod_lightning.envs.alchemy.notes import Facts
from cod_lightning.envs.alchemy.plan import Pair, Ways, levels_of, pair_of, shortest_plan, ways_of
from cod_lightning.envs.alchemy.wording import AlchemyWording, Seen
from cod_lightning.envs.base import Demonstrator, TextPolicy
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.types import Message, Role


@dataclass(frozen=True)
class RandomAlchemist(TextPolicy):
    """Any two elements at hand; notes nothing."""

    wording: AlchemyWording

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.respond("", _any_pair(self.wording.read(messages), rng))

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.notes.write({})


@dataclass(frozen=True)
class ScriptedAlchemist(TextPolicy):
    """Perfect memory and task-wise sensible play: a shortest plan of known recipes, else a pair that is not known yet.

    A reference, not a ceiling: it never explores for later tasks.
    """

    wording: AlchemyWording

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return attempt(self.wording, messages, rng, trust_context=True)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.notes.write(self.wording.notes.recorded(messages))


@dataclass(frozen=True)
class AlchemyOracle(TextPolicy):
    """Knows the recipes."""

    wording: AlchemyWording
    truth: Facts

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return _play(self.wording, self.wording.read(messages), self.truth, rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.notes.write(self.truth)


@dataclass(frozen=True)
class AlchemyTeacher(Demonstrator):
    """Shows the protocol: plays like the scripted policy, trusts the context mostly, and notes only part of what it saw."""

    wording: AlchemyWording
    truth: Facts
    levels: Mapping[str, int]
    dials: TeacherDials

    def context(self, rng: random.Random) -> str:
        draw = rng.random()
        if draw < self.dials.context_true:
            return self.wording.notes.noisy(self.truth, self.levels, self.dials.context_accuracy, rng)
        if draw < self.dials.context_true + self.dials.context_junk:
            return self.wording.notes.junk(self.levels, rng)
        return ""

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return attempt(self.wording, messages, rng, trust_context=rng.random() < self.dials.follow)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        recorded = self.wording.notes.recorded(messages)
        return self.wording.notes.noisy(recorded, self.levels, self.dials.note_accuracy, rng)


def attempt(wording: AlchemyWording, messages: Sequence[Message], rng: random.Random, *, trust_context: bool) -> str:
    """Go on with a shortest plan of what is known; where there is none, try something unknown."""
    seen = wording.read(messages)
    told = wording.notes.parse(messages[0].content) if trust_context else {}
    shown: dict[Pair, str] = {}
    for message in messages[2:]:
        if message.role is Role.USER:
            shown.update(wording.notes.parse(message.content))
    return _play(wording, seen, believed(seen, told, shown), rng)


def believed(seen: Seen, told: Facts, shown: Facts) -> dict[Pair, str]:
    """What was shown, and what was told as far as it can be true: tiers must rise, and with one recipe each it must be new."""
    facts: dict[Pair, str] = {}
    for pair, result in told.items():
        if seen.levels and not {*pair, *([result] if result else [])} <= seen.levels.keys():
            continue
        if seen.levels and result and seen.levels[result] <= max(seen.levels[name] for name in pair):
            continue
        if seen.single and result and result in shown.values():
            continue
        facts[pair] = result
    return {**facts, **shown}


def _play(wording: AlchemyWording, seen: Seen, facts: Facts, rng: random.Random) -> str:
    search = _Search.of(seen, facts)
    plan = search.plan({seen.target: 1}, seen.turns_left) or search.exploration(rng)
    if not plan:
        return wording.respond("", _any_pair(seen, rng))
    return wording.respond(facts.get(plan[0], ""), plan[0])


@dataclass(frozen=True)
class _Search:
    """What can be planned, and what can be tried, with what is known."""

    seen: Seen
    facts: Facts
    levels: Mapping[str, int]
    """As shown, else as the known recipes tell."""
    ways: Ways
    at_hand: tuple[str, ...]
    """What is there or can be made by known recipes, numbers of copies aside."""

    @classmethod
    def of(cls, seen: Seen, facts: Facts) -> "_Search":
        levels = seen.levels or levels_of(facts, dict.fromkeys(seen.base, 0))
        ways = ways_of(facts, levels)
        found = {name for name, count in seen.have.items() if count}
        while fresh := {
            name for name, pairs in ways.items() if name not in found and any(set(pair) <= found for pair in pairs)
        }:
            found |= fresh
        return cls(seen, facts, levels, ways, tuple(sorted(found)))

    def plan(self, needs: Mapping[str, int], most: int) -> tuple[Pair, ...] | None:
        """Fewest attempts after which all that is needed is at hand."""
        return shortest_plan(self.ways, self.levels, needs, self.seen.have, consume=self.seen.limited, most=most)

    def exploration(self, rng: random.Random) -> tuple[Pair, ...]:
        """Attempts that end with an unknown pair, first of all one that may give what is missing; empty if there is none.

        Pairs just below the highest missing element come first, then lower ones (an input may be missing), then those that
        cannot serve this task. One element twice is half as likely a recipe as two, so it is put off as long as something
        else may come of the rounds that are left.
        """
        highest = max(self.levels.get(name, 0) for name in self.at_hand)
        missing = _missing(self.seen.target, self.ways, self.at_hand) or {self.seen.target}
        wanted = {self.levels.get(name, highest + 1) - 1 for name in missing}
        downwards = sorted(wanted | set(range(max(wanted))), reverse=True)
        for tiers, twice in (
            (downwards if self.seen.turns_left > 1 else [], False),
            (downwards, True),
            (range(max(wanted) + 1, highest + 1), True),
        ):
            for tier in tiers:
                if options := self._options(tier, twice, rng):
                    return min(options)[-1]
        return ()

    def _options(self, tier: int, twice: bool, rng: random.Random) -> list[tuple[int, float, float, tuple[Pair, ...]]]:
        """Attempts that end with an unknown pair whose higher input is of that tier: the fewest first, then the likelier pair
        (with limited materials the one that more is left of)."""
        above = [name for name, level in self.levels.items() if level == tier + 1]
        if self.seen.single and self.seen.levels and all(name in self.ways for name in above):
            return []
        found = []
        for pair in combinations_with_replacement(self.at_hand, 2):
            low, high = sorted(self.levels.get(name, 0) for name in pair)
            same = pair[0] == pair[1]
            if high != tier or low <= tier - self.seen.gap or pair in self.facts or (same and not twice):
                continue
            needs = {name: pair.count(name) if self.seen.limited else 1 for name in pair}
            plan = self.plan(needs, self.seen.turns_left - 1)
            if plan is not None:
                weight = 0.5 if low < high else 1.0 if same else 2.0
                spare = min(self.seen.have.get(name, 0) for name in pair) if self.seen.limited else 0
                found.append((len(plan), -weight - spare, rng.random(), (*plan, pair)))
        return found


def _missing(target: str, ways: Ways, at_hand: Sequence[str]) -> set[str]:
    """The elements that no known recipe gives and without which no known recipe leads to the target."""
    found, open_names = set[str](), [target]
    visited: set[str] = set()
    while open_names:
        name = open_names.pop()
        if name in visited or (name in at_hand and name != target):
            continue
        visited.add(name)
        if name in ways:
            open_names += [part for pair in ways[name] for part in pair]
        else:
            found.add(name)
    return found


def _any_pair(seen: Seen, rng: random.Random) -> Pair:
    """Two elements at hand; the same one only if there are copies enough."""
    first = rng.choice([name for name, count in seen.have.items() if count])
    left = {name: count - (name == first and seen.limited) for name, count in seen.have.items()}
    return pair_of(first, rng.choice([name for name, count in left.items() if count > 0]))
