"""Alchemy in sentences, for language models."""

import re
from collections.abc import Sequence

from cod_lightning.envs.alchemy.graph import levels
from cod_lightning.envs.alchemy.notes import NaturalNotes
from cod_lightning.envs.alchemy.plan import Pair
from cod_lightning.envs.alchemy.wording import AlchemySeen, AlchemyView, AlchemyWording, Combination
from cod_lightning.envs.answers import quoted
from cod_lightning.types import Message


class NaturalAlchemy(AlchemyWording):
    """Full sentences. Facts as in the reference, sentences our own."""

    notes = NaturalNotes()

    def __init__(self, max_turns: int, limited: bool, single: bool, gap: int, length_penalty: float) -> None:
        self.max_turns, self.limited, self.gap, self.length_penalty = max_turns, limited, gap, length_penalty
        self.single = single
        """Whether each element has exactly one recipe."""

    def rules(self, listed: Sequence[Sequence[str]], noun: str) -> str:
        one = noun[:-1]
        several = "has exactly one recipe" if self.single else "has one or more recipes"
        inputs = (
            f"Both inputs of a recipe are of the tier just below the result; they may be the same {one}."
            if self.gap == 1
            else f"One input of a recipe is of the tier just below the result, the other of that tier or a lower one, at most "
            f"{self.gap} tiers below the result; they may be the same {one}."
        )
        spent = (
            "Every attempt uses up one copy of each input, also when it gives nothing (two copies if both are the same). If the "
            "target can no longer be made from what is left, the task ends."
            if self.limited
            else "Nothing is used up: whatever you have once, you have for the whole task."
        )
        shown = [
            f"All {noun} by tier (tier 0 is what you start with; some of the others may be of no use):",
            *(f"Tier {tier}: {', '.join(names)}" for tier, names in enumerate(listed)),
        ]
        penalty = "" if not self.length_penalty else "; the fewer rounds, the better"
        return "\n".join(
            [
                f"You combine {noun} to make a target.",
                "",
                "Rules:",
                f"- Each round you combine two {noun} that you have. Some pairs are recipes and give a new one; all other pairs "
                "give nothing.",
                f"- A result is always of a higher tier than both inputs, and each of the {noun} above tier 0 {several}. {inputs}",
                f"- {spent}",
                f"- You have {self.max_turns} rounds. Making the target ends the task with a reward{penalty}; else the reward "
                "is 0. Naming something that you do not have costs the round.",
                "- The recipes are hidden and names mean nothing. The same recipes hold in related tasks, so what you find out "
                "may pay later: use hints if you are given any, and do not repeat a pair that is known to give nothing.",
                "",
                *([*shown, ""] if listed else []),
                "Answer with brief reasoning, then exactly one pair in this form:",
                "<answer>X + Y</answer>",
            ]
        )

    def observation(self, view: AlchemyView) -> str:
        parts = [f"Round {view.turn + 1} of {self.max_turns}."]
        if view.last is not None:
            parts.append(f"Last attempt: {self._last_text(view.last)}")
        tier = "" if view.tier is None else f" (tier {view.tier})"
        parts += [f"Target: {view.target}{tier}.", f"Inventory: {self._inventory(view)}."]
        return "\n".join([*parts, "Which two do you combine?"])

    def feedback(self, outcome: str, view: AlchemyView, complaint: str) -> str:
        used = f"{view.turn} of {self.max_turns} rounds"
        ending = {
            "win": f"You made the target {view.target} with {used}.",
            "late": f"You have no rounds left ({used}); the target {view.target} was not made.",
            "dead": f"From the materials that are left the target {view.target} can no longer be made; the task ends after "
            f"{used}.",
            "malformed": f"Your answer could not be read: {complaint}. Expected one <answer>X + Y</answer>. The task is over.",
        }[outcome]
        shown = [self._last_text(view.last)] if view.last is not None and outcome != "malformed" else []
        return "\n".join([*shown, ending])

    def respond(self, wanted: str, pair: Pair) -> str:
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
            base=tuple(_inventory_of(first)),
            levels=levels([line.split(", ") for line in listed]),
            limited="Every attempt uses up" in rules,
            single="has exactly one recipe" in rules,
            gap=int(crossing[1]) if crossing else 1,
            turns_left=self._turns_left(messages),
        )

    def _inventory(self, view: AlchemyView) -> str:
        if not self.limited:
            return ", ".join(name for name, _ in view.at_hand)
        total = sum(count for _, count in view.at_hand)
        return ", ".join(f"{name} x{count}" for name, count in view.at_hand if count) + f" ({total} in all)"

    def _last_text(self, last: Combination) -> str:
        if last.unread:
            return f"your answer could not be read: {last.unread}. Expected one <answer>X + Y</answer>; next time the task ends."
        if last.lacking:
            return f"you do not have enough of {quoted(last.lacking, 20)}; nothing was combined."
        return f"{self.notes.fact(last.pair, last.result)}." + (" The inputs are used up." if self.limited else "")


def _inventory_of(observation: str) -> dict[str, int]:
    """Elements and copies; one each where no number is given."""
    line = re.search(r"^Inventory: (.*)\.$", observation, flags=re.MULTILINE)
    assert line is not None, "the observation shows no inventory"
    items = re.findall(r"([a-z]+)(?: x(\d+))?(?:, | \(|$)", line[1], flags=re.ASCII)
    return {name: int(count or 1) for name, count in items}
