"""A baseline below the mean of the siblings."""

from dataclasses import dataclass

from cod_lightning.credit.baselines import Baseline, advantages_of, mean
from cod_lightning.credit.table import PerEpisode
from cod_lightning.ranges import NotPositive


@dataclass(frozen=True, kw_only=True)
class AsymRE(Baseline):
    """A_i = R_i - (mean_k R_k + shift): a baseline below the mean weighs successes more than failures.

    Source: arXiv 2506.20520, with a loss that has no importance weights (`method=reinforce`) and `model.scale=none`; a
    baseline above the mean collapses there. What differs: the mean is over siblings at a position. Packs in which all returns are
    equal are imitated with weight -shift.

    >>> import torch
    >>> returns = PerEpisode(torch.tensor([[[1.0], [0.0]]]), torch.ones(1, 2, 1, dtype=torch.bool))
    >>> AsymRE(shift=-0.1)(returns).values.flatten()
    tensor([ 0.6000, -0.4000])
    """

    shift: NotPositive = -0.1
    """Added to the mean, in units of reward; at most 0."""

    @property
    def of_equals(self) -> float:
        return -self.shift

    def __call__(self, returns: PerEpisode) -> PerEpisode:
        return advantages_of(returns, returns.values - mean(returns) - self.shift)
