"""How the plant is put into words: what both renderings offer, and the reading of answers that they share."""

import random
from abc import abstractmethod
from collections.abc import Sequence

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.control.belief import PlantBelief, PlantRanges
from cod_lightning.envs.control.evidence import Earlier
from cod_lightning.envs.control.plant import ControlTask, PlantRun
from cod_lightning.envs.task_world import WorldWording
from cod_lightning.types import Message


class ControlWording(WorldWording):
    """How the plant is put into words."""

    ranges: PlantRanges

    @abstractmethod
    def rules(self, symbols: tuple[str, ...], turns: int) -> str:
        """System text."""

    @abstractmethod
    def observation(self, task: ControlTask, earlier: Earlier | None) -> str:
        """What is seen before the answer."""

    @abstractmethod
    def finished(self, task: ControlTask, run: PlantRun) -> str:
        """Feedback after a law that ran to the end."""

    @abstractmethod
    def failed(self, step: int, reason: str) -> str:
        """Feedback after a law that failed at a step."""

    @abstractmethod
    def unreadable(self, complaint: str, symbols: tuple[str, ...], warning: str) -> str:
        """Feedback after an answer that cannot be read; a warning is followed by the observation that stands, if any."""

    @abstractmethod
    def formula_in(self, response: str, symbols: tuple[str, ...]) -> tuple[str, str]:
        """(formula, "") or ("", which rule was broken)."""

    @abstractmethod
    def respond(self, formula: str) -> str:
        """A well-formed response."""

    @abstractmethod
    def chosen(self, belief: PlantBelief, task: ControlTask, rng: random.Random) -> str:
        """A good response for that belief."""

    @abstractmethod
    def seen(self, messages: Sequence[Message]) -> tuple[ControlTask, Earlier | None]:
        """Task (its hidden numbers 0) and earlier law, read back from a dialogue."""

    @abstractmethod
    def noted(self, text: str) -> PlantBelief:
        """What a note says; the prior for what it does not."""

    @abstractmethod
    def recorded(self, messages: Sequence[Message]) -> PlantBelief:
        """What the dialogue of an update episode states: the old note, sharpened by the run."""

    @abstractmethod
    def write(self, belief: PlantBelief, symbols: tuple[str, ...]) -> str:
        """A note."""

    @abstractmethod
    def symbols_in(self, text: str) -> tuple[str, ...]:
        """Symbols that the rules within the text use."""


def only_answer(response: str) -> tuple[str, str]:
    """As `answer_of`; besides, nothing may follow the answer, and no three backticks may occur.

    >>> only_answer("so <answer>1</answer> done")
    ('', 'text follows </answer>; expected nothing after it')
    """
    answer, complaint = answer_of(response)
    if complaint:
        return "", complaint
    if "```" in response:
        return "", "three backticks occur; expected no code fence"
    if response.partition("</answer>")[2].strip():
        return "", "text follows </answer>; expected nothing after it"
    return answer, ""
