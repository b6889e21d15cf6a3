"""Extra solve episodes beside the [G K E] of the lifecycles: attempts at a task from a snapshot of a lifecycle."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.types import AttemptKind, Group


@dataclass(frozen=True, kw_only=True)
class AttemptTable:
    """One row for each of X attempts, in the order of group, lifecycle and attempt."""

    of: Int[Tensor, "X 3"]
    """(g, k, e) of the solve episode that began from the same state of the world, at the same task."""
    same_context: Bool[Tensor, " X"]
    """Whether the attempt had that episode's context too, and is trained on; the others only measure."""
    rewards: Float[Tensor, " X"]
    valid: Bool[Tensor, " X"]
    """True where there is a reward; a missing one is stored as 0 and must not be used."""
    action_counts: Int[Tensor, " X"]
    """Tokens that the policy sampled in the attempt."""

    def __post_init__(self) -> None:
        num = len(self.of)
        assert tuple(self.of.shape) == (num, 3), f"of is {tuple(self.of.shape)}, not [X 3]"
        for name in ("same_context", "rewards", "valid", "action_counts"):
            found = tuple(getattr(self, name).shape)
            assert found == (num,), f"{name} is {found}; of has {num} rows"


def attempt_table(groups: Sequence[Group]) -> AttemptTable:
    """The attempts of a rollout; without any, a table of no rows."""
    rows = [
        (g, k, lifecycle.index(attempt.episode.kind, attempt.episode.position), attempt)
        for g, group in enumerate(groups)
        for k, lifecycle in enumerate(group.lifecycles)
        for attempt in lifecycle.attempts
    ]
    episodes = [attempt.episode for *_, attempt in rows]
    return AttemptTable(
        of=torch.tensor([place for *place, _ in rows], dtype=torch.long).view(-1, 3),
        same_context=torch.tensor([a.kind is AttemptKind.SAME_CONTEXT for *_, a in rows], dtype=torch.bool),
        rewards=torch.tensor([e.reward or 0.0 for e in episodes], dtype=torch.float32),
        valid=torch.tensor([e.reward is not None for e in episodes], dtype=torch.bool),
        action_counts=torch.tensor([e.num_action_tokens for e in episodes], dtype=torch.long),
    )
