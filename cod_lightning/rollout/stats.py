"""What a rollout cost, in seconds and tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    """Lifecycles in which an engine or a world failed."""
    token_drift: int
    """Turns whose recorded ids are not those that the engine conditioned on; 0 unless something is wrong."""
    num_rewritten: int = 0
    """Turns before which the chat template rewrote history: each begins a segment within its episode."""

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
            num_rewritten=sum(
                not turn.extends for one in lifecycles for episode in one.episodes for turn in episode.turns[1:]
            ),
        )
