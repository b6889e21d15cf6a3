"""A hidden rule, whatever its family: a finite table of what comes of an action in a state, over names that mean nothing.

A *fact* is a row of it in the order in which it is written and spoken, (state, result, action): "from wug one comes to blip by
dax". An answer is a fact that a player means to bring about, so the action to look up is the last of three words.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from cod_lightning.envs.base import Unchanging

Fact = tuple[str, str, str]
Row = tuple[str, str, str, str]
"""State, action, result, next state."""


@dataclass(frozen=True, kw_only=True)
class Rule(Unchanging):
    """Roles of the names, and what is hidden."""

    kind: str
    """Family and sizes, as in `lookup-4-4`."""
    states: tuple[str, ...]
    actions: tuple[str, ...]
    """Their order is shown, and means something in some families."""
    results: tuple[str, ...]
    """Those that a task can ask for."""
    ends: tuple[str, ...] = ()
    """Results that lose a task at once."""
    table: tuple[Row, ...] = ()

    @cached_property
    def effects(self) -> dict[tuple[str, str], tuple[str, str]]:
        """(result, next state) of a state and an action."""
        return {(state, action): (result, after) for state, action, result, after in self.table}

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        """All that there is to know."""
        return tuple(fact for state, action, *_ in self.table for fact in self.shown(state, action))

    def shown(self, state: str, action: str) -> tuple[Fact, ...]:
        """What is seen of an action: its result, and the next state where that is another."""
        result, after = self.effects[state, action]
        moved = ((state, after, action),) if after not in (state, result) else ()
        return ((state, result, action), *moved)


@dataclass(frozen=True, slots=True)
class Goal(Unchanging):
    """What a task asks for: a result, from a state, by some of its actions, within so many turns."""

    start: str
    want: str
    menu: tuple[str, ...]
    turns: int

    @property
    def asked(self) -> tuple[str, str, frozenset[str]]:
        """What it asks, whatever the order in which actions are shown."""
        return self.start, self.want, frozenset(self.menu)


def way(facts: Iterable[Fact], states: Collection[str], goal: Goal, here: str, turns: int) -> list[Fact]:
    """The shortest way that these facts know from `here` to the wanted result within the turns; empty if there is none."""
    by_state: dict[str, list[Fact]] = {}
    for fact in facts:
        if fact[2] in goal.menu:
            by_state.setdefault(fact[0], []).append(fact)
    ways: dict[str, list[Fact]] = {here: []}
    fringe = [here]
    for _ in range(turns):
        beyond: list[str] = []
        for state in fringe:
            for fact in by_state.get(state, ()):
                if fact[1] == goal.want:
                    return [*ways[state], fact]
                if fact[1] in states and fact[1] not in ways:
                    ways[fact[1]] = [*ways[state], fact]
                    beyond.append(fact[1])
        fringe = beyond
    return []


def consistent(facts: Sequence[Fact], states: Collection[str]) -> tuple[Fact, ...]:
    """Each once, in order of its first statement; of several about the result, or the move, of one action the last holds."""
    kept: dict[tuple[str, str, bool], Fact] = {}
    for fact in facts:
        kept[fact[0], fact[2], fact[1] in states] = fact
    return tuple(kept.values())
