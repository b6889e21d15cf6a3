"""What a rendering of alchemy may show, and two of them: sentences for language models, fused words for tiny policies."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.alchemy.graph import fixed_names, levels, slots_of
from cod_lightning.envs.alchemy.notes import CompactNotes, NaturalNotes
from cod_lightning.envs.alchemy.parameters import AlchemyParameters
from cod_lightning.envs.alchemy.plan import Pair
from cod_lightning.envs.alchemy.tasks import AlchemyTask
from cod_lightning.envs.answers import quoted
from cod_lightning.envs.base import Unchanging
from cod_lightning.types import Message, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """The last combination: what it gave, or why it was none."""

    pair: Pair
    result: str = ""
    lacking: str = ""
    """The input that was not at hand, as the policy wrote it; nothing was spent then."""


@dataclass(slots=True, kw_only=True)
class AlchemyView:
    """How a task stands."""

    task: AlchemyTask
    have: dict[str, int]
    """Elements and their copies: base elements, then what was made."""
    turn: int = 0
    """Rounds used so far."""
    last: Combination | None = None
    tried: tuple[tuple[Pair, str], ...] = ()
    """Combinations of this task and what they gave, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlchemySeen:
    """A task as read back from a dialogue."""

    target: str
    have: Mapping[str, int]
    levels: Mapping[str, int]
    limited: bool
    single: bool
    gap: int
    turns_left: int


class _AlchemyWords:
    """What both renderings share."""

    max_turns: int

    def _turns_left(self, messages: Sequence[Message]) -> int:
        return self.max_turns - sum(message.role is Role.ASSISTANT for message in messages)


class NaturalAlchemy(_AlchemyWords):
    """Full sentences. Facts as in the reference, sentences our own."""

    notes = NaturalNotes()

    def __init__(self, parameters: AlchemyParameters) -> None:
        self.parameters, self.max_turns = parameters, parameters.max_turns

    def rules(self, listed: Sequence[Sequence[str]]) -> str:
        """System text, with the names by tier as they are listed."""
        several = "has exactly one recipe" if self.parameters.single else "has one or more recipes"
        inputs = (
            "Both inputs of a recipe are of the tier just below the result; they may be the same element."
            if self.parameters.max_tier_gap == 1
            else f"One input of a recipe is of the tier just below the result, the other of that tier or a lower one, at most "
            f"{self.parameters.max_tier_gap} tiers below the result; they may be the same element."
        )
        over = (
            "If the target can no longer be made from what is left, the task ends."
            if self.parameters.end_when_dead
            else "The task goes on where the target can no longer be made, until no pair is left."
        )
        spent = (
            f"Every attempt uses up one copy of each input, also when it gives nothing (two copies if both are the same). {over}"
            if self.parameters.limited
            else "Nothing is used up: whatever you have once, you have for the whole task."
        )
        shown = [
            "All elements by tier (tier 0 is what you start with; some of the others may be of no use):",
            *(f"Tier {tier}: {', '.join(names)}" for tier, names in enumerate(listed)),
        ]
        penalty = "" if not self.parameters.length_penalty else "; the fewer rounds, the better"
        return "\n".join(
            [
                "You combine elements to make a target.",
                "",
                "Rules:",
                "- Each round you combine two elements that you have. Some pairs are recipes and give a new one; all other pairs "
                "give nothing.",
                "- A result is always of a higher tier than both inputs, and each of the elements above tier 0 "
                f"{several}. {inputs}",
                f"- {spent}",
                f"- You have {self.max_turns} rounds. Making the target ends the task with a reward{penalty}; else the reward "
                "is 0. Naming something that you do not have costs the round.",
                "- The recipes are hidden and names mean nothing. The same recipes hold in related tasks, so what you find out "
                "may pay later: use hints if you are given any, and do not repeat a pair that is known to give nothing.",
                "",
                *shown,
                "",
                "Answer with brief reasoning, then exactly one pair in this form:",
                "<answer>X + Y</answer>",
            ]
        )

    def observation(self, view: AlchemyView) -> str:
        """What is seen before a round."""
        parts = [f"Round {view.turn + 1} of {self.max_turns}."]
        if view.last is not None:
            parts.append(f"Last attempt: {self._last_text(view.last)}")
        tier = levels(view.task.tiers)[view.task.target]
        parts += [f"Target: {view.task.target} (tier {tier}).", f"Inventory: {self._inventory(view.have)}."]
        return "\n".join([*parts, "Which two do you combine?"])

    def feedback(self, outcome: str, view: AlchemyView, complaint: str) -> str:
        """Words after the task; outcome is win, late, dead or malformed."""
        used, target = f"{view.turn} of {self.max_turns} rounds", view.task.target
        ending = {
            "win": f"You made the target {target} with {used}.",
            "late": f"You have no rounds left ({used}); the target {target} was not made.",
            "dead": f"From the materials that are left the target {target} can no longer be made; the task ends after "
            f"{used}.",
            "malformed": f"Your answer could not be read: {complaint}. Expected one <answer>X + Y</answer>. The task is over.",
        }[outcome]
        shown = [self._last_text(view.last)] if view.last is not None and outcome != "malformed" else []
        return "\n".join([*shown, ending])

    def respond(self, wanted: str, pair: Pair) -> str:
        """A well-formed response that combines the pair, to make the wanted element or (without one) to see what happens."""
        return f"I {f'want {wanted}' if wanted else 'try something new'}. <answer>{' + '.join(pair)}</answer>"

    def read(self, messages: Sequence[Message]) -> AlchemySeen:
        """Tiers from the rules (they come before any hint), the task from the observations."""
        system, first, last = messages[0].content, messages[1].content, messages[-1].content
        rules = system.partition("<answer>")[0]
        listed = re.findall(r"^Tier \d: (.*)$", rules, flags=re.MULTILINE)
        crossing = re.search(r"at most (\d) tiers below", rules)
        target = re.search(r"^Target: (\w+)", first, flags=re.MULTILINE)
        assert target is not None, "the observation names no target"
        return AlchemySeen(
            target=target[1],
            have=_inventory_of(last),
            levels=levels([line.split(", ") for line in listed]),
            limited="Every attempt uses up" in rules,
            single="has exactly one recipe" in rules,
            gap=int(crossing[1]) if crossing else 1,
            turns_left=self._turns_left(messages),
        )

    def _inventory(self, have: Mapping[str, int]) -> str:
        if not self.parameters.limited:
            return ", ".join(have)
        shown = ", ".join(f"{name} x{count}" for name, count in have.items() if count)
        return f"{shown} ({sum(have.values())} in all)"

    def _last_text(self, last: Combination) -> str:
        if last.lacking:
            return f"you do not have enough of {quoted(last.lacking, 20)}; nothing was combined."
        return f"{self.notes.fact(last.pair, last.result)}." + (
            " The inputs are used up." if self.parameters.limited else ""
        )


def _inventory_of(observation: str) -> dict[str, int]:
    """Elements and copies; one each where no number is given."""
    line = re.search(r"^Inventory: (.*)\.$", observation, flags=re.MULTILINE)
    assert line is not None, "the observation shows no inventory"
    items = re.findall(r"([a-z]+)(?: x(\d+))?(?:, | \(|$)", line[1], flags=re.ASCII)
    return {name: int(count or 1) for name, count in items}


class CompactAlchemy(Unchanging, _AlchemyWords):
    """`want=p`, then `a+b=k @k` (`@`: made so far), and at the end `win a+b=k k+k=p`; answers are single words."""

    def __init__(self, parameters: AlchemyParameters) -> None:
        gap, cross = parameters.max_tier_gap, parameters.cross_tier_max > 0
        self.tiers = fixed_names(parameters.fixed_sizes())
        self.max_turns, self.single = parameters.max_turns, parameters.single
        self.levels = levels(self.tiers)
        self.gap, slots = gap if cross else 1, slots_of(self.tiers, gap, cross)
        results = tuple(self.tiers[max(self.levels[name] for name in pair) + 1] for pair in slots)
        self.notes = self._slots = CompactNotes(slots, results)

    def rules(self, listed: Sequence[Sequence[str]]) -> str:
        return "alchemy"

    def observation(self, view: AlchemyView) -> str:
        if view.last is None:
            return f"want={view.task.target}"
        made = [f"@{name}" for name in view.have if name not in self.tiers[0]]
        return " ".join([self._last_text(view.last), *made])

    def feedback(self, outcome: str, view: AlchemyView, complaint: str) -> str:
        return " ".join([outcome, *dict.fromkeys(self.notes.fact(pair, result) for pair, result in view.tried)])

    def respond(self, wanted: str, pair: Pair) -> str:
        return f"{wanted or 'try'} <answer>{'+'.join(pair)}</answer>"

    def read(self, messages: Sequence[Message]) -> AlchemySeen:
        made = re.findall(r"@(\w)", messages[-1].content)
        return AlchemySeen(
            target=messages[1].content.removeprefix("want="),
            have=dict.fromkeys([*self.tiers[0], *made], 1),
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
        return "lacking" if last.lacking else self.notes.fact(last.pair, last.result)


AlchemyWording = NaturalAlchemy | CompactAlchemy
"""How alchemy is put into words."""
