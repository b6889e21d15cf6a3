"""A loss on what the environment says: the policy learns to predict it."""

from dataclasses import dataclass
from typing import ClassVar

from cod_lightning.objective.terms import LossTerm, TermInputs, TermSums
from cod_lightning.ranges import Positive


@dataclass(frozen=True, kw_only=True)
class ObservationLoss(LossTerm):
    """Minus the log-probs of observation tokens, so that the policy learns what its actions lead to.

    An observation is what a row has after its first action token and the policy did not sample.

    Source: the implicit world model of "Agent Learning via Early Experience" (arXiv 2510.08558). What differs: there it is a
    supervised stage before training, here a term beside the policy loss.
    """

    observes: ClassVar[bool] = True
    coefficient: Positive = 0.01
    """Weight of an observation token beside an action token, above 0."""

    @property
    def logged_as(self) -> str:
        return "observation_loss"

    def __call__(self, inputs: TermInputs) -> TermSums:
        """Logged in nats for each action token, as the loss has it."""
        assert inputs.observation_logprobs is not None, "log-probs of observations"
        loss = -inputs.observation_logprobs.sum()
        return TermSums(loss=loss, logged=float(loss.detach()))
