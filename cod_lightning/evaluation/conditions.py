"""The conditions that a suite is played under: the trained policy, its controls, the warm start and the references.

Each control answers one way in which a rising curve could be luck: tasks that get easier, a world that remembers, a habit that
needs no context, a context that only looks useful.
"""

from dataclasses import dataclass
from enum import StrEnum

from cod_lightning.envs.base import Reference


class ConditionKind(StrEnum):
    """A control's value is its key among a suite's `controls` in `evaluation.json`."""

    TRAINED = "trained"
    """The policy that was trained, with the contexts that it writes."""
    BLANKED_CONTEXT = "blanked_context"
    """The trained policy writes contexts as usual, and no solve prompt shows them."""
    NO_CONTEXT = "no_context"
    """Solve episodes only: no context is written, and a solve prompt is the world's rules alone."""
    SHUFFLED_CONTEXT = "shuffled_context"
    """Solve episodes only: the prompt at position n shows what the trained agent had there in the suite's next pack (after
    the last pack comes the first). At position 0 that is the empty context. It may happen to be true here."""
    ORACLE_CONTEXT = "oracle_context"
    """Solve episodes only: from position 0 on, the prompt shows what the world's oracle writes down after its first task of
    the pack; where the rule changes, from there on what the oracle of the new rule writes."""
    NO_WORLD_MEMORY = "no_world_memory"
    """As trained, in the same packs, in a world that carries nothing from task to task itself; left out where it never does."""
    WARM_START = "warm_start"
    """The policy as it was before reinforcement learning."""
    WARM_START_BLANKED = "warm_start_blanked"
    """The warm start at its best temperature, with `blanked_context`: what its contexts are worth."""
    ENDPOINT = "endpoint"
    """A model behind a chat endpoint, with the contexts that it writes (`data.baseline`)."""
    RANDOM = "random"
    """The world's reference that answers legally at random."""
    MEMORYLESS = "memoryless"
    """The world's scripted reference with its context hidden; memory that the world itself has stays."""
    SCRIPTED = "scripted"
    """The world's scripted reference: perfect memory, play that is best for each task by itself."""
    ORACLE = "oracle"
    """The world's reference that knows what is hidden; where the rule changes, from there on the one of the new rule. A ceiling
    for tasks taken one by one; the other references are none."""

    @property
    def reference(self) -> Reference | None:
        """The world's reference that it needs, for the turns or for the contexts shown; None for most."""
        if self is ConditionKind.MEMORYLESS:
            return Reference.SCRIPTED
        if self is ConditionKind.ORACLE_CONTEXT:
            return Reference.ORACLE
        return Reference(self.value) if self in REFERENCES else None


CONTEXT_CONTROLS = (
    ConditionKind.BLANKED_CONTEXT,
    ConditionKind.NO_CONTEXT,
    ConditionKind.SHUFFLED_CONTEXT,
    ConditionKind.ORACLE_CONTEXT,
    ConditionKind.NO_WORLD_MEMORY,
)
"""Played with the trained weights, with another context or another memory."""
OF_TRAINED = (ConditionKind.TRAINED, *CONTEXT_CONTROLS)
"""All that are played with the trained weights."""
REFERENCES = (ConditionKind.RANDOM, ConditionKind.MEMORYLESS, ConditionKind.SCRIPTED, ConditionKind.ORACLE)
"""Played by the world's own policies: they need no weights, and are the same whatever was trained."""
CONTROLS = (*CONTEXT_CONTROLS, *REFERENCES)
"""What a suite's `controls` can name."""
DEFAULT_CONTROLS = (ConditionKind.BLANKED_CONTEXT, *REFERENCES)
"""The controls of a suite that names none, as far as its world has the references."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One way to play a suite."""

    suite: str
    kind: ConditionKind
    temperature: float
    name: str
    """`trained`, or the key among the suite's controls in `evaluation.json`, such as `warm_start_t0.3`."""

    @property
    def label(self) -> str:
        """What a rollout of it, and the file of its lifecycles, is called."""
        return f"test_{self.suite}_{self.name}"


def warm_start_name(temperature: float, suite_temperature: float) -> str:
    """The warm start's key: `warm_start` at the suite's own temperature, `warm_start_tT` at any other."""
    return "warm_start" if temperature == suite_temperature else f"warm_start_t{float(temperature)}"
