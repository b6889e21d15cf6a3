"""Rewards to advantages, all steps: returns -> baseline, with attempts where there are any -> scale -> reweight."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cod_lightning.credit.anchors import with_attempts
from cod_lightning.credit.baselines import Advantages, Baseline, by_packs, deviation, divided
from cod_lightning.credit.returns import CreditRule, Returns
from cod_lightning.credit.reweight import AdaptiveRED
from cod_lightning.credit.table import EpisodeTable, kind_id
from cod_lightning.types import EpisodeKind

Scale = Literal["none", "group", "batch"]

NO_ADVANTAGE = 1e-6
"""Below this an advantage is rounding noise."""


@dataclass(frozen=True, kw_only=True)
class Credited:
    """Advantages of every entry of a table."""

    table: EpisodeTable
    returns: Returns
    """[N], of lifecycles' own episodes."""
    values: Float[Tensor, " F"]
    """Before the reweighting; 0 where nothing could be compared, and where an attempt only measures."""
    valid: Bool[Tensor, " F"]
    """Where there is an advantage: the episode's return is known, and that of a sibling."""
    tilted: Float[Tensor, " F"]
    """After the reweighting."""
    temperature: float = 0.0
    """RED's; 0 where it left the advantages alone."""
    filtered: bool = False
    """Whether episodes of packs without signal have no advantage (the filtering half of DAPO's dynamic sampling, arXiv 2503.14476;
    the other half is `data.resample_packs`)."""

    @cached_property
    def packs_with_signal(self) -> Bool[Tensor, " G"]:
        """Whether any episode of a pack has an advantage: where all siblings do equally well, none has."""
        return self._of_packs(self.values.abs() > NO_ADVANTAGE)

    @property
    def advantages(self) -> Float[Tensor, " F"]:
        """What rows of each episode get; NaN where there is no advantage."""
        known = self.valid & self.packs_with_signal[self.table.place[:, 0]] if self.filtered else self.valid
        return self.tilted.masked_fill(~known, math.nan)

    @property
    def known_returns(self) -> Float[Tensor, " F"]:
        """Returns of lifecycles' own episodes; NaN where they are not known, and of attempts."""
        values = torch.full_like(self.values, math.nan)
        values[: self.table.num_own] = self.returns.values.masked_fill(~self.returns.valid, math.nan)
        return values

    @cached_property
    def group_returns(self) -> Float[Tensor, " N"]:
        """Mean return of what each own episode is compared with, itself included."""
        means = torch.zeros_like(self.returns.values)
        for entries, there, of in by_packs(self.table, self.returns):
            mean = torch.where(of.valid, of.values, 0.0).sum(dim=1) / of.valid.sum(dim=1).clamp_min(1)
            means[entries[there]] = mean[:, None].expand_as(of.values)[there]
        return means

    def figures(self) -> dict[str, float]:
        """What a training logs of it."""
        num = self.table.num_own
        signal = self.packs_with_signal[self._of_packs(self.valid & (torch.arange(len(self.valid)) < num))]
        rewards, known = self.table.solved()
        count, total = known.sum(dim=(0, 1)), rewards.sum(dim=(0, 1))
        return {
            "train/lifecycles": float(len(self.table.place[:num, :2].unique(dim=0))),
            "train/red_temperature": self.temperature,
            "train/zero_variance_packs": 1 - float(signal.sum()) / max(1, len(signal)),
            **{f"train/reward/position_{n}": float(total[n] / count[n]) for n in range(len(count)) if count[n]},
        }

    def _of_packs(self, chosen: Bool[Tensor, " F"]) -> Bool[Tensor, " G"]:
        """Packs with any of the chosen entries."""
        return torch.zeros(self.table.num_packs, dtype=torch.bool).index_fill(0, self.table.place[chosen, 0], True)


def credited(
    table: EpisodeTable,
    rule: CreditRule,
    baseline: Baseline,
    scale: Scale = "none",
    reweight: AdaptiveRED | None = None,
    kinds: Collection[EpisodeKind] = tuple(EpisodeKind),
    *,
    filtered: bool = False,
) -> Credited:
    """Advantages of the whole table, which is that of all ranks; those of other `kinds` of episodes are not known.

    Attempts are divided by what their solve episode's siblings are divided by, and weigh in RED's sum with their tokens.
    """
    returns, num = rule.of_all(table), table.num_own
    found = with_attempts(table, returns, rule, baseline)
    valid = found.valid & torch.isin(table.kinds, torch.tensor([kind_id(kind) for kind in kinds]))
    values = torch.where(valid, found.values, 0.0)
    own = Advantages(values[:num], valid[:num])
    divisor = deviation(own, returns, "none" if scale == "group" else scale).expand_as(own.values)
    if scale == "group":
        divisor = divisor.clone()
        for entries, there, of in by_packs(table, returns):
            divisor[entries[there]] = deviation(own, of, scale).expand_as(of.values)[there]
    values = divided(values, torch.cat([divisor, divisor[table.parent[num:]]]))
    tilted, temperature = values, 0.0
    if reweight is not None:  # as if all were one lifecycle, which is all that RED's sum sees
        as_one = (one.view(1, 1, -1) for one in (values, table.action_counts, valid))
        tilted, temperature = reweight(*as_one)
    return Credited(
        table=table,
        returns=returns,
        values=values,
        valid=valid,
        tilted=tilted.flatten(),
        temperature=temperature,
        filtered=filtered,
    )
