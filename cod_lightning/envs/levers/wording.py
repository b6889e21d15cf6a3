"""Two renderings of the levers: sentences for language models, fused words for tiny policies."""

import re
from collections.abc import Sequence

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.base import Unchanging
from cod_lightning.envs.code_labels import CodeLabels
from cod_lightning.envs.facts import FactTable

FIXED = CodeLabels("Lever")
NOUNS = ("Lever", "Switch", "Rope", "Handle", "Chain", "Knob", "Cord", "Latch", "Button", "String")
"""Whatever can be pulled."""
UNSEEN_NOUNS = ("Pedal", "Crank", "Valve", "Pulley")
"""The same, for packs that are to have none of `NOUNS`."""
COLOURS = ("red", "green", "blue", "gold")
MORE_COLOURS = (
    "white",
    "black",
    "brown",
    "orange",
    "purple",
    "pink",
    "grey",
    "silver",
    "yellow",
    "crimson",
    "cyan",
    "beige",
)
"""Drawn from beside `COLOURS`, where labels are."""
UNSEEN_COLOURS = ("violet", "scarlet", "turquoise", "ivory", "maroon", "lime", "bronze", "indigo")
"""Those of packs that are to have none of the others."""
Pulls = Sequence[tuple[int, str]]
"""Levers pulled so far, and the colour that each gave."""


class CompactLevers(Unchanging):
    """`want=red`, then `2=blue`, and at the end `win 2=blue 1=red`; answers are single words."""

    facts = FactTable("Lever", COLOURS, compact=True)
    offer = "levers"
    """Asks for a colour to be chosen."""

    def rules(self, max_turns: int) -> str:
        return "levers"

    def observation(self, goal: str, pulls: Pulls, max_turns: int) -> str:
        return f"{pulls[-1][0]}={pulls[-1][1]}" if pulls else self.question(goal)

    def question(self, goal: str) -> str:
        """What a task asks."""
        return f"want={goal}"

    def feedback(self, outcome: str, goal: str, pulls: Pulls, complaint: str) -> str:
        return " ".join([outcome, *dict.fromkeys(f"{code}={colour}" for code, colour in pulls)])

    def respond(self, goal: str, code: int) -> str:
        return f"{goal} <answer>Lever_{code}</answer>"

    def propose(self, goal: str) -> str:
        return f"want={goal}"

    def chosen(self, response: str) -> str:
        """The colour that is proposed, in one word like that of a task; empty for any other text."""
        goal = response.strip().removeprefix("want=")
        return goal if goal in COLOURS and goal != response.strip() else ""

    def goal_of(self, observation: str) -> str:
        return observation.removeprefix("want=")

    def words(self) -> tuple[str, ...]:
        answers = tuple(f"<answer>Lever_{code}</answer>" for code in self.facts.codes)
        wanted = tuple(f"want={colour}" for colour in COLOURS)
        return ("levers", *wanted, *self.facts.words(), *answers, *COLOURS, "win", "miss", "malformed")


class NaturalLevers(Unchanging):
    """Full sentences."""

    def __init__(self, labels: CodeLabels = FIXED, palette: tuple[str, ...] = COLOURS) -> None:
        self.labels, self.palette = labels, palette
        self.facts = FactTable(labels.noun, palette, compact=False, names=labels.names, verb=" gives")

    @property
    def offer(self) -> str:
        """Asks for a colour to be chosen."""
        return (
            f"Now choose yourself which colour of {', '.join(self.palette)} you will be asked for next: one to learn from. "
            "Answer with brief reasoning, then exactly one choice in this form:\n<answer>Colour COLOUR</answer>"
        )

    def rules(self, max_turns: int) -> str:
        """System text."""
        noun = self.labels.noun.lower()
        nouns = f"{noun}{'es' if noun.endswith('ch') else 's'}"
        pulls = "1 pull" if max_turns == 1 else f"{max_turns} pulls"
        return (
            f"There are four {nouns}, {self.labels.span}. Each gives one of the colours {', '.join(self.palette)}, no two the "
            "same; which gives which is hidden and stays the same in related tasks, so what you find out may pay later.\n\n"
            f"You are told a colour and have {pulls} to get it: a reward if it comes, 0 if not.\n\n"
            f"Answer with brief reasoning, then exactly one action in this form:\n<answer>{self.labels.noun} X</answer>"
        )

    def observation(self, goal: str, pulls: Pulls, max_turns: int) -> str:
        """What is seen before a pull."""
        last = f" {self._pull_text(pulls)}" if pulls else ""
        asked = f"Which {self.labels.noun.lower()} do you pull?"
        return f"Pull {len(pulls) + 1} of {max_turns}.{last}\n{self.question(goal)}. {asked}"

    def question(self, goal: str) -> str:
        """What a task asks, with the colour at its end."""
        return f"The wanted colour is {goal}"

    def feedback(self, outcome: str, goal: str, pulls: Pulls, complaint: str) -> str:
        """Words after the task; outcome is win, miss or malformed."""
        ending = {
            "win": f"That is the wanted colour, with pull number {len(pulls)}.",
            "miss": f"You have no pulls left; the wanted colour was {goal}.",
            "malformed": f"Your answer could not be read: {complaint}. Expected one <answer>{self.labels.noun} X</answer> with X "
            f"from {self.labels.span}. The task is over.",
        }[outcome]
        return ending if outcome == "malformed" else f"Result: {self._pull_text(pulls)} {ending}"

    def respond(self, goal: str, code: int) -> str:
        """A well-formed response."""
        return f"I want {goal}. <answer>{self.labels.label(code)}</answer>"

    def propose(self, goal: str) -> str:
        """A well-formed proposal."""
        return f"I choose {goal}. <answer>Colour {goal}</answer>"

    def chosen(self, response: str) -> str:
        """The colour that is proposed, whatever the case; empty where there is none such.

        >>> NaturalLevers().chosen("So be it. <answer>Colour Blue</answer>"), NaturalLevers().chosen("<answer>Lever 1</answer>")
        ('blue', '')
        """
        match = re.fullmatch(r"colour[\s_]+([a-z]+)", answer_of(response)[0].lower(), re.ASCII)
        return match[1] if match and match[1] in self.palette else ""

    def goal_of(self, observation: str) -> str:
        """The wanted colour, read back from the first observation."""
        return observation.partition("The wanted colour is ")[2].partition(".")[0]

    def _pull_text(self, pulls: Pulls) -> str:
        code, colour = pulls[-1]
        return f"{self.labels.label(code)} gives {colour}."


LeverWording = NaturalLevers | CompactLevers
"""How levers are put into words."""
