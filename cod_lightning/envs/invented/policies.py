"""Play in any domain, by the table of what is known and the odds that its family gives to what is not."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from cod_lightning.envs.invented.kinds import family_of
from cod_lightning.envs.invented.rule import Fact, Goal, Rule, consistent, way
from cod_lightning.envs.invented.wording import InventedWording
from cod_lightning.envs.players import Play
from cod_lightning.types import Message, Role

Facts = tuple[Fact, ...]
_MOST_NOTED = 6
"""Facts of a demonstrated context."""


@dataclass(frozen=True)
class InventedPlay(Play[Facts]):
    """Knows the family, its sizes and the roles of the names, but of the table only what was seen or noted."""

    wording: InventedWording
    rule: Rule
    """Of the pack; its table is not read."""
    turns: int
    """That a task has."""
    infers: bool = True
    """Whether what the context says also counts where it does not state the wanted result. Else the first on offer is tried, so
    that a policy need only look up what is stated."""
    needed: Facts = ()
    """What the pack's tasks need, for demonstrated contexts."""

    @property
    def nothing(self) -> Facts:
        return ()

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        shown = self.wording.shown(messages)
        return self.wording.respond(shown.here, shown.want, rng.choice(shown.menu), known=False)

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> Facts:
        noted = self.wording.parse(messages[0].content) if trust_context else []
        seen = [f for m in messages[2:] if m.role is Role.USER for f in self.wording.parse(m.content)]
        return consistent([*noted, *seen], self.rule.states)

    def recorded(self, messages: Sequence[Message]) -> Facts:
        return consistent([f for m in messages for f in self.wording.parse(m.content)], self.rule.states)

    def answer(self, messages: Sequence[Message], known: Facts, rng: random.Random) -> str:
        """The first step of a known way; else what is likeliest, the first on offer of several; else a step to somewhere else.

        Only what was stated is announced, also where an action is sure by inference.
        """
        shown = self.wording.shown(messages)
        rule, left = self.rule, self.turns - shown.used
        goal = Goal(shown.here, shown.want, shown.menu, left)
        own = [fact for fact in known if fact[0] in rule.states and fact[2] in rule.actions]
        if known_way := way(own, rule.states, goal, shown.here, left):
            return self.wording.respond(*known_way[0])
        if not self.infers:
            own = [fact for fact in self.known(messages, trust_context=False) if fact in own]
        odds = family_of(rule).odds(rule, own, goal, shown.here, left)
        best = max(odds.values())
        if best == 0 and (moves := [f for f in own if f[0] == shown.here and f[1] in rule.states and f[1] != f[0]]):
            return self.wording.respond(*moves[0])
        likeliest = next(a for a in shown.menu if odds[a] == best)
        return self.wording.respond(shown.here, shown.want, likeliest, known=False)

    def noisy(self, facts: Facts, accuracy: float, rng: random.Random) -> Facts:
        """Facts that are kept with that probability, else left out or with another result in equal shares."""
        kept: list[Fact] = []
        for state, result, action in facts:
            if rng.random() < accuracy:
                kept.append((state, result, action))
            elif rng.random() < 0.5:
                kept.append((state, rng.choice(self.rule.results), action))
        return tuple(kept)

    def earlier(self, truth: Facts, rng: random.Random) -> Facts:
        """A few facts, half of those that the pack's tasks need among them."""
        found = dict.fromkeys(fact for fact in self.needed if rng.random() < 0.5)
        found |= dict.fromkeys(rng.sample(truth, min(len(truth), rng.randint(1, 4))))
        facts = list(found)[:_MOST_NOTED]
        return tuple(rng.sample(facts, len(facts)))

    def junk(self, rng: random.Random) -> Facts:
        of = self.rule
        made_up = [
            (rng.choice(of.states), rng.choice(of.results), rng.choice(of.actions)) for _ in range(rng.randint(1, 4))
        ]
        return consistent(made_up, of.states)

    def write(self, facts: Facts, messages: Sequence[Message] = ()) -> str:
        return self.wording.context(facts)
