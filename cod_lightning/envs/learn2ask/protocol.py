"""Facts about a hidden protocol: how they are written down and read back."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cod_lightning.envs.facts import UNKNOWN
from cod_lightning.envs.learn2ask.items import BY_NAME, ITEMS

Facts = dict[str, bool]
"""Of an item: whether it is required."""


@dataclass(frozen=True)
class ProtocolTable:
    """Which items there are and how many are required; spelled `fever=yes sleep=?` or `- fever: required`."""

    items: tuple[str, ...]
    num_required: int
    compact: bool

    def merge(self, before: str, after: str) -> Facts:
        """What both texts state; where they contradict each other the earlier one is dropped as a whole: the rule has changed."""
        old, new = self.known(before), self.known(after)
        both = {**old, **new}
        agree = all(new.get(name, fact) == fact for name, fact in old.items()) and self.possible(both)
        return self.complete(both if agree else new)

    def known(self, text: str) -> Facts:
        """Facts that the text states (of two that contradict each other the later one, also where too many would be required),
        and all implied ones."""
        known: Facts = {}
        for name, fact in reversed(self._statements(text)):
            if name not in known and self.possible({**known, name: fact}):
                known[name] = fact
        return self.complete(known)

    def possible(self, facts: Mapping[str, bool]) -> bool:
        """Whether some protocol agrees."""
        num_yes = sum(facts.values())
        return num_yes <= self.num_required and len(facts) - num_yes <= len(self.items) - self.num_required

    def complete(self, facts: Mapping[str, bool]) -> Facts:
        """The rest, once all required items, or all others, are known."""
        num_yes = sum(facts.values())
        if num_yes == self.num_required:
            return {name: facts.get(name, False) for name in self.items}
        if len(facts) - num_yes == len(self.items) - self.num_required:
            return {name: facts.get(name, True) for name in self.items}
        return dict(facts)

    def write(self, facts: Mapping[str, bool]) -> str:
        """A context with a line, or a word, for every item in the order of the catalogue."""
        if self.compact:
            return " ".join(f"{name}={_WORDS[facts.get(name)]}" for name in self.items)
        return "\n".join(f"- {BY_NAME[name].title}: {_PHRASES[facts.get(name)]}" for name in self.items)

    def words(self) -> tuple[str, ...]:
        """Every compact fact, and what feedback calls a wanted item."""
        facts = tuple(f"{name}={word}" for name in self.items for word in ("yes", "no", UNKNOWN))
        return (*facts, *(f"want={name}" for name in self.items))

    def _statements(self, text: str) -> list[tuple[str, bool]]:
        if self.compact:
            found = re.findall(r"(?<!\S)(?:want=(\w+)|(\w+)=(yes|no))(?!\S)", text, flags=re.ASCII)
            said = [(wanted or name, bool(wanted) or fact == "yes") for wanted, name, fact in found]
        else:
            found = re.findall(rf"\b({_TITLES})(?: is|:) (not )?required\b", text)
            said = [(_NAMES[title], not negated) for title, negated in found]
        return [(name, fact) for name, fact in said if name in self.items]


_WORDS = {True: "yes", False: "no", None: UNKNOWN}
_PHRASES = {True: "required", False: "not required", None: "unknown"}
_NAMES = {item.title: item.name for item in ITEMS}
_TITLES = "|".join(sorted(_NAMES, key=len, reverse=True))
