"""Supervised fine-tuning on own successes, as a baseline."""

from dataclasses import dataclass

from cod_lightning.credit.baselines import Baseline, GroupMean
from cod_lightning.credit.table import PerEpisode


@dataclass(frozen=True, kw_only=True)
class Accepted(Baseline):
    """A_i = 1 for what is accepted, whatever `model.scale` is; everything else is in no row and in no denominator, as if it had
    not been sampled.

    With `method=reinforce` that is supervised fine-tuning on own successes, minus the mean log-prob of the accepted tokens. What is
    accepted follows the credit: `TrajectoryCredit` accepts lifecycles as a whole, `EpisodeCredit` and `TaskCredit` episode by
    episode.

    Sources: rejection sampling (RFT, arXiv 2308.01825), and expert iteration over rollouts (ReST-EM, arXiv 2312.06585). What
    differs: one update on a rollout's successes, not a new fit from the initial policy; duplicates are kept.

    >>> import torch
    >>> returns = PerEpisode(torch.tensor([[[1.0], [0.5], [0.0]]]), torch.ones(1, 3, 1, dtype=torch.bool))
    >>> Accepted()(returns).valid.flatten().tolist(), Accepted(at_least=1.0)(returns).valid.flatten().tolist()
    ([True, False, False], [True, False, False])
    """

    at_least: float | None = None
    """Accept returns from here on, in units of reward; null accepts those above the mean of their siblings."""

    @property
    def compares(self) -> bool:
        return self.at_least is None

    @property
    def scales(self) -> bool:
        return False

    def __call__(self, returns: PerEpisode) -> PerEpisode:
        if self.at_least is not None:
            accepted = returns.valid & (returns.values >= self.at_least)
        else:
            compared = GroupMean()(returns)
            accepted = compared.valid & (compared.values > 1e-6)
        return PerEpisode(accepted.to(returns.values), accepted)
