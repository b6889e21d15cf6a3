"""What a rendering of alchemy may show, and what it must offer; `natural` and `compact` are the two that there are."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.alchemy.notes import RecipeNotes
from cod_lightning.envs.alchemy.plan import Pair
from cod_lightning.envs.task_world import WorldWording
from cod_lightning.types import Message, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """The last combination: what it gave, or why it was none."""

    pair: Pair
    result: str = ""
    lacking: str = ""
    """The input that was not at hand, as the policy wrote it; nothing was spent then."""
    unread: str = ""
    """Which rule the answer broke, where a task forgives that once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlchemyView:
    """All that a rendering may show of a task."""

    target: str
    tier: int | None
    """The target's; None where tiers are not shown."""
    at_hand: tuple[tuple[str, int], ...]
    """Elements and their copies: base elements, then what was made."""
    num_base: int
    turn: int
    """Rounds used so far."""
    last: Combination | None = None
    tried: tuple[tuple[Pair, str], ...] = ()
    """Combinations of this task and what they gave, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlchemySeen:
    """A task as read back from a dialogue."""

    target: str
    have: Mapping[str, int]
    base: tuple[str, ...]
    levels: Mapping[str, int]
    """Empty where tiers are not shown."""
    limited: bool
    single: bool
    gap: int
    turns_left: int


class AlchemyWording(WorldWording):
    """How alchemy is put into words."""

    notes: RecipeNotes
    max_turns: int

    @abstractmethod
    def rules(self, listed: Sequence[Sequence[str]], noun: str) -> str:
        """System text, with the names by tier as they are listed (empty where they are not shown), and the word for elements."""

    @abstractmethod
    def observation(self, view: AlchemyView) -> str:
        """What is seen before a round."""

    @abstractmethod
    def feedback(self, outcome: str, view: AlchemyView, complaint: str) -> str:
        """Words after the task; outcome is win, late, dead or malformed."""

    @abstractmethod
    def respond(self, wanted: str, pair: Pair) -> str:
        """A well-formed response that combines the pair, to make the wanted element or (without one) to see what happens."""

    @abstractmethod
    def read(self, messages: Sequence[Message]) -> AlchemySeen:
        """The task that a dialogue stands in."""

    def _turns_left(self, messages: Sequence[Message]) -> int:
        return self.max_turns - sum(message.role is Role.ASSISTANT for message in messages)
