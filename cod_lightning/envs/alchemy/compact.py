"""Alchemy in fused words, for tiny policies."""

import re
from collections.abc import Sequence

from cod_lightning.envs.alchemy.graph import fixed_names, levels, slots_of
from cod_lightning.envs.alchemy.notes import CompactNotes
from cod_lightning.envs.alchemy.plan import Pair
from cod_lightning.envs.alchemy.wording import AlchemySeen, AlchemyView, AlchemyWording, Combination
from cod_lightning.envs.unchanging import Unchanging
from cod_lightning.types import Message


class CompactAlchemy(Unchanging, AlchemyWording):
    """`want=p`, then `a+b=k @k` (`@`: made so far), and at the end `win a+b=k k+k=p`; answers are single words."""

    def __init__(self, sizes: Sequence[int], gap: int, cross: bool, single: bool, max_turns: int) -> None:
        self.tiers, self.max_turns, self.single = fixed_names(sizes), max_turns, single
        self.levels = levels(self.tiers)
        self.gap, slots = gap if cross else 1, slots_of(self.tiers, gap, cross)
        results = tuple(self.tiers[max(self.levels[name] for name in pair) + 1] for pair in slots)
        self.notes = self._slots = CompactNotes(slots, results)

    def rules(self, listed: Sequence[Sequence[str]], noun: str) -> str:
        return "alchemy"

    def observation(self, view: AlchemyView) -> str:
        """The target at first; then what the last pair gave, and what was made so far."""
        if view.last is None:
            return f"want={view.target}"
        made = [f"@{name}" for name, _ in view.at_hand[view.num_base :]]
        return " ".join([self._last_text(view.last), *made])

    def feedback(self, outcome: str, view: AlchemyView, complaint: str) -> str:
        """The outcome, then every different pair in order of appearance."""
        del complaint
        return " ".join([outcome, *dict.fromkeys(self.notes.fact(pair, result) for pair, result in view.tried)])

    def respond(self, wanted: str, pair: Pair) -> str:
        return f"{wanted or 'try'} <answer>{'+'.join(pair)}</answer>"

    def read(self, messages: Sequence[Message]) -> AlchemySeen:
        """Target from the first observation, what was made from the last."""
        made = re.findall(r"@(\w)", messages[-1].content)
        return AlchemySeen(
            target=messages[1].content.removeprefix("want="),
            have=dict.fromkeys([*self.tiers[0], *made], 1),
            base=self.tiers[0],
            levels=self.levels,
            limited=False,
            single=self.single,
            gap=self.gap,
            turns_left=self._turns_left(messages),
        )

    def words(self) -> tuple[str, ...]:
        names = tuple(self.levels)
        above = names[len(self.tiers[0]) :]
        pairs = [(a, b) for n, a in enumerate(names) for b in names[n:]]
        return (
            "alchemy",
            *(f"want={name}" for name in above),
            *self._slots.words(),
            *(self.notes.fact(pair, "") for pair in pairs if pair not in self._slots.slots),
            *(f"@{name}" for name in above),
            *(f"<answer>{'+'.join(pair)}</answer>" for pair in pairs),
            *above,
            *("try", "lacking", "win", "late", "malformed"),
        )

    def _last_text(self, last: Combination) -> str:
        if last.unread:
            return "malformed"
        return "lacking" if last.lacking else self.notes.fact(last.pair, last.result)
