"""Controls: what a suite is played with beside the trained policy as it is, and what they show or hide.

Each answers one way in which a rising curve could be luck: tasks that get easier, a world that remembers, a habit that needs no
context, a context that only looks useful.
"""

from enum import StrEnum

from cod_lightning.envs.base import Reference


class Control(StrEnum):
    """Its value is its key among a suite's `controls` in `evaluation.json`."""

    NONE = "none"
    """Nothing is changed."""
    BLANKED_CONTEXT = "blanked_context"
    """The agent writes contexts as usual, and no solve prompt shows them."""
    NO_CONTEXT = "no_context"
    """Solve episodes only: nobody is asked for a context, and a solve prompt is the world's rules and nothing else."""
    SHUFFLED_CONTEXT = "shuffled_context"
    """Solve episodes only: the prompt at position n shows what the trained agent had there in the suite's next pack (after
    the last pack comes the first). At position 0 that is the empty context. It may happen to be true here."""
    ORACLE_CONTEXT = "oracle_context"
    """Solve episodes only: from position 0 on, the prompt shows what the world's oracle writes down after its first task of
    the pack; where the rule changes, from there on what the oracle of the new rule writes."""
    NO_WORLD_MEMORY = "no_world_memory"
    """As trained, in the same packs, in a world that carries nothing from task to task itself; left out where it never does."""
    RANDOM = "random"
    """The world's reference that answers legally at random."""
    MEMORYLESS = "memoryless"
    """The world's scripted reference with its context hidden; memory that the world itself gives stays."""
    SCRIPTED = "scripted"
    """The world's scripted reference: perfect memory, play that is best for each task by itself."""
    ORACLE = "oracle"
    """The world's reference that knows what is hidden; where the rule changes, from there on the one of the new rule."""

    @property
    def is_reference(self) -> bool:
        """Played by the world's own policies: needs no weights, and is the same whatever was trained."""
        return self in (Control.RANDOM, Control.MEMORYLESS, Control.SCRIPTED, Control.ORACLE)

    @property
    def reference(self) -> Reference | None:
        """The world's reference that it needs: whose turns are played, or whose contexts are shown; None for most."""
        if self is Control.MEMORYLESS:
            return Reference.SCRIPTED
        if self is Control.ORACLE_CONTEXT:
            return Reference.ORACLE
        return Reference(self.value) if self.is_reference else None


DEFAULT_CONTROLS = (
    Control.BLANKED_CONTEXT,
    Control.RANDOM,
    Control.MEMORYLESS,
    Control.SCRIPTED,
    Control.ORACLE,
)
"""What a suite has that names none, as far as its world has the references."""
