"""Play in alchemy: plans of known recipes, and what to try where there is none."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

from cod_lightning.envs.alchemy.notes import Facts
from cod_lightning.envs.alchemy.plan import Pair, Ways, pair_of, shortest_plan, ways_of
from cod_lightning.envs.alchemy.wording import AlchemySeen, AlchemyWording
from cod_lightning.envs.players import Play
from cod_lightning.types import Message, Role


@dataclass(frozen=True)
class AlchemyPlay(Play[Facts]):
    """A shortest plan of known recipes, else a pair that is not known yet. It never explores for later tasks."""

    wording: AlchemyWording
    levels: Mapping[str, int]
    """Of the pack's elements, for what a teacher makes up."""

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.respond("", _any_pair(self.wording.read(messages), rng))

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> Facts:
        noted = self.wording.notes.parse(messages[0].content) if trust_context else {}
        shown: dict[Pair, str] = {}
        for message in messages[2:]:
            if message.role is Role.USER:
                shown.update(self.wording.notes.parse(message.content))
        return believed(self.wording.read(messages), noted, shown)

    def answer(self, messages: Sequence[Message], known: Facts, rng: random.Random) -> str:
        seen = self.wording.read(messages)
        search = _Search.of(seen, known)
        plan = search.plan({seen.target: 1}, seen.turns_left) or search.exploration(rng)
        if not plan:
            return self.wording.respond("", _any_pair(seen, rng))
        return self.wording.respond(known.get(plan[0], ""), plan[0])

    def recorded(self, messages: Sequence[Message]) -> Facts:
        return self.wording.notes.parse("\n".join(message.content for message in messages))

    def noisy(self, facts: Facts, accuracy: float, rng: random.Random) -> Facts:
        return self.wording.notes.noisy(facts, self.levels, accuracy, rng)

    def junk(self, rng: random.Random) -> Facts:
        return self.wording.notes.junk(self.levels, rng)

    def write(self, facts: Facts, messages: Sequence[Message] = ()) -> str:
        return self.wording.notes.write(facts)


def believed(seen: AlchemySeen, noted: Facts, shown: Facts) -> dict[Pair, str]:
    """What was shown, and what was noted as far as it can be true: tiers must rise, and with one recipe each it must be new."""
    facts: dict[Pair, str] = {}
    for pair, result in noted.items():
        if not {*pair, *([result] if result else [])} <= seen.levels.keys():
            continue
        if result and seen.levels[result] <= max(seen.levels[name] for name in pair):
            continue
        if seen.single and result and result in shown.values():
            continue
        facts[pair] = result
    return {**facts, **shown}


@dataclass(frozen=True)
class _Search:
    """What can be planned, and what can be tried, with what is known."""

    seen: AlchemySeen
    facts: Facts
    ways: Ways
    at_hand: tuple[str, ...]
    """What is there or can be made by known recipes, numbers of copies aside."""

    @classmethod
    def of(cls, seen: AlchemySeen, facts: Facts) -> "_Search":
        ways = ways_of(facts, seen.levels)
        found = {name for name, count in seen.have.items() if count}
        while fresh := {
            name for name, pairs in ways.items() if name not in found and any(set(pair) <= found for pair in pairs)
        }:
            found |= fresh
        return cls(seen, facts, ways, tuple(sorted(found)))

    def plan(self, needs: Mapping[str, int], most: int) -> tuple[Pair, ...] | None:
        """Fewest attempts after which all that is needed is at hand."""
        return shortest_plan(self.ways, self.seen.levels, needs, self.seen.have, consume=self.seen.limited, most=most)

    def exploration(self, rng: random.Random) -> tuple[Pair, ...]:
        """Attempts that end with an unknown pair, first of all one that may give what is missing; empty if there is none.

        Pairs just below the highest missing element come first, then lower ones (an input may be missing), then those that
        cannot serve this task. One element twice is half as likely a recipe as two, so it is put off as long as something
        else may come of the rounds that are left.
        """
        highest = max(self.seen.levels.get(name, 0) for name in self.at_hand)
        missing = _missing(self.seen.target, self.ways, self.at_hand) or {self.seen.target}
        wanted = {self.seen.levels.get(name, highest + 1) - 1 for name in missing}
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
        above = [name for name, level in self.seen.levels.items() if level == tier + 1]
        if self.seen.single and all(name in self.ways for name in above):
            return []
        found = []
        for pair in combinations_with_replacement(self.at_hand, 2):
            low, high = sorted(self.seen.levels.get(name, 0) for name in pair)
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


def _any_pair(seen: AlchemySeen, rng: random.Random) -> Pair:
    """Two elements at hand; the same one only if there are copies enough."""
    first = rng.choice([name for name, count in seen.have.items() if count])
    left = {name: count - (name == first and seen.limited) for name, count in seen.have.items()}
    return pair_of(first, rng.choice([name for name, count in left.items() if count > 0]))
