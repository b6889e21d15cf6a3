"""What a rollout cost, in seconds and tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cod_lightning.rollout.faults import count_faults
from cod_lightning.types import Group, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStats:
    """One rollout of this rank."""

    seconds: float
    num_lifecycles: int
    num_generated_tokens: int
    """Tokens that the policy sampled."""
    num_prompt_tokens: int
    """Prompt tokens that were new to their dialogue; a KV cache spares the others."""
    num_failed: int
    """Lifecycles in which an engine or a world failed, or that were out of time."""
    token_drift: int
    """Turns whose recorded ids are not those that the engine conditioned on; 0 unless something is wrong."""
    num_lost_groups: int = 0
    """Groups of siblings of whom fewer than two went all the way, so that nothing compares them as a whole."""
    faults: dict[str, int] = field(default_factory=dict)
    """Lifecycles lost to each fault, by its name; together they are `num_failed`."""

    @classmethod
    def of(cls, groups: Sequence[Group], seconds: float, token_drift: int) -> "RolloutStats":
        """The stats of these groups, rolled out together in that time."""
        lifecycles = [lifecycle for group in groups for lifecycle in group.lifecycles]
        turns: list[Turn] = [turn for one in lifecycles for episode in one.episodes for turn in episode.turns]
        return cls(
            seconds=seconds,
            num_lifecycles=len(lifecycles),
            num_generated_tokens=sum(len(turn.action_ids) for turn in turns),
            num_prompt_tokens=sum(len(turn.new_ids) for turn in turns),
            num_failed=sum(lifecycle.failed for lifecycle in lifecycles),
            token_drift=token_drift,
            num_lost_groups=sum(len(g.lifecycles) > 1 and _num_whole(g) < 2 for g in groups),
            faults=count_faults(groups),
        )


def _num_whole(group: Group) -> int:
    return sum(not lifecycle.failed for lifecycle in group.lifecycles)
