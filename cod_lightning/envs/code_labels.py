"""What levers are called in sentences.

Answers are a noun and a name, as in `Lever 3`. Where labels vary, both are drawn for each pack, so that a policy cannot learn one
template. Codes themselves are always 1, 2, 3, 4.
"""

import re
from dataclasses import dataclass

from cod_lightning.envs.answers import answer_of, code_of
from cod_lightning.envs.base import Unchanging
from cod_lightning.envs.facts import NUMBERS

NAMES = (
    NUMBERS,
    ("A", "B", "C", "D"),
    ("w", "x", "y", "z"),
    ("K", "L", "M", "N"),
    ("I", "II", "III", "IV"),
    ("alpha", "beta", "gamma", "delta"),
)
"""Four names in their usual order, so that `A to D` names them all."""
UNSEEN_NAMES = (
    ("P", "Q", "R", "S"),
    ("E", "F", "G", "H"),
    ("5", "6", "7", "8"),
    ("one", "two", "three", "four"),
    ("spring", "summer", "autumn", "winter"),
)
"""Names that are drawn where packs are to have none of `NAMES`."""
_WORDS = """
anchor apple arrow badger bamboo basket beetle bottle bridge butter candle carrot castle cedar cherry cloud coffee
copper cotton desert donkey dragon eagle engine feather fiddle forest garden ginger hammer harbor helmet honey island
jacket kettle ladder lemon lizard magnet maple marble meadow mirror monkey mountain needle ocean onion otter paper
pepper piano pillow planet pocket pumpkin rabbit ribbon river rocket saddle salmon shadow shovel spider sugar summit
table temple thunder tiger tomato tunnel turtle velvet violin wagon walnut window wizard
"""
WORDS = tuple(_WORDS.split())
"""Single words that are names where they are drawn one by one."""
_UNSEEN_WORDS = """
almond bucket cactus camel cannon circus comet dolphin falcon finger glacier goblet guitar igloo jungle lantern lobster
mango medal muffin napkin parrot peanut pebble penguin pirate puzzle raven sailor sandal teapot tulip umbrella valley
wallet
"""
UNSEEN_WORDS = tuple(_UNSEEN_WORDS.split())
"""The same, where packs are to have none of `WORDS`."""


@dataclass(frozen=True, slots=True)
class CodeLabels(Unchanging):
    """A noun and four names.

    >>> CodeLabels("Move", ("A", "B", "C", "D")).label(2)
    'Move B'
    """

    noun: str
    names: tuple[str, ...] = NUMBERS

    @property
    def span(self) -> str:
        """All names, in short where they have a usual order, as in `1 to 4`."""
        if self.names in NAMES or self.names in UNSEEN_NAMES:
            return f"{self.names[0]} to {self.names[-1]}"
        return f"{', '.join(self.names[:-1])} and {self.names[-1]}"

    def label(self, code: int) -> str:
        """Noun and name."""
        return f"{self.noun} {self.names[code - 1]}"

    def code_of(self, response: str) -> tuple[int, str]:
        """(1..4, "") or (0, which rule was broken): as `answers.code_of`, for these names; case does not matter.

        >>> CodeLabels("Move", ("A", "B", "C", "D")).code_of("<answer>move b, I think</answer>")
        (2, '')
        """
        if self.names == NUMBERS:
            return code_of(response, self.noun, len(NUMBERS))
        answer, complaint = answer_of(response)
        if complaint:
            return 0, complaint
        match = re.match(rf"{self.noun}[\s_]+([A-Za-z0-9]+)", answer, flags=re.IGNORECASE | re.ASCII)
        if match is None:
            return 0, f"the answer is not '{self.noun}' and a name"
        named = [code for code, name in enumerate(self.names, start=1) if name.lower() == match[1].lower()]
        return (named[0], "") if named else (0, f"the name is not one of {', '.join(self.names)}")
