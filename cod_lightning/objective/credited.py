"""Rewards to advantages, all steps: returns -> baseline, with attempts where there are any -> scale -> reweight."""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cod_lightning.objective.anchors import with_attempts
from cod_lightning.objective.baselines import Advantages, Baseline, deviation, divided
from cod_lightning.objective.batch import Batch, CreditTable, kind_id
from cod_lightning.objective.returns import CreditRule, Returns
from cod_lightning.objective.reweight import AdaptiveRED
from cod_lightning.types import EpisodeKind

Scale = Literal["none", "group", "batch"]

NO_ADVANTAGE = 1e-6
"""Below this an advantage is rounding noise."""


@dataclass(frozen=True, kw_only=True)
class Credited:
    """Advantages of everything in a credit table."""

    table: CreditTable
    returns: Returns
    values: Float[Tensor, "G K E"]
    """Before the reweighting; 0 where nothing could be compared."""
    valid: Bool[Tensor, "G K E"]
    attempts: Float[Tensor, " X"]
    """0 also where an attempt only measures."""
    attempts_valid: Bool[Tensor, " X"]
    tilted: Float[Tensor, " S"]
    """What rows get: `values`, then `attempts`, after the reweighting."""
    temperature: float = 0.0
    """RED's; 0 where it left the advantages alone."""
    filtered: bool = False
    """Whether rows of packs without signal get no advantage."""

    def packs_with_signal(self) -> Bool[Tensor, " G"]:
        """Whether any episode of a pack has an advantage: where all siblings do equally well, none has."""
        signal = (self.values.abs() > NO_ADVANTAGE).flatten(1).any(dim=1)
        signal[self.table.attempts.of[self.attempts.abs() > NO_ADVANTAGE, 0]] = True
        return signal

    def stamped(self, rows: Batch) -> Batch:
        """The rows of this rollout with their advantages.

        One is known where the episode's return is, and that of a sibling; elsewhere it is NaN, as where `filtered` takes the row's
        pack out (the filtering half of DAPO's dynamic sampling, arXiv 2503.14476; the other half is `data.resample_packs`).
        """
        packs, siblings, episodes = rows.episode_index.unbind(dim=1)
        own = (packs * self.valid.shape[1] + siblings) * self.valid.shape[2] + episodes
        place = torch.where(rows.attempt < 0, own, self.valid.numel() + rows.attempt)
        known = torch.cat([self.valid.flatten(), self.attempts_valid])[place]
        if self.filtered:
            known = known & self.packs_with_signal()[packs]
        return replace(rows, advantages=self.tilted[place].masked_fill(~known, math.nan))

    def figures(self) -> dict[str, float]:
        """What a training logs of it."""
        table, signal = self.table, self.packs_with_signal()[self.valid.flatten(1).any(dim=1)]
        count = table.valid[..., table.solves].sum(dim=(0, 1))
        mean = table.known_rewards[..., table.solves].sum(dim=(0, 1)) / count.clamp_min(1)
        return {
            "train/lifecycles": float(table.valid[..., 0].numel()),
            "train/red_temperature": self.temperature,
            "train/zero_variance_packs": 1 - float(signal.sum()) / max(1, len(signal)),
            **{f"train/reward/position_{n}": float(r) for n, r in enumerate(mean) if count[n]},
        }


def credited(
    table: CreditTable,
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
    returns, extra = rule(table), table.attempts
    advantages, attempts = with_attempts(table, returns, rule, baseline)
    trained = torch.isin(table.kinds, torch.tensor([kind_id(kind) for kind in kinds]))
    advantages = _only(advantages, trained.expand_as(advantages.valid))
    attempts = _only(attempts, trained[extra.of[:, 2]])
    divisor = deviation(advantages, returns, scale).expand_as(advantages.values)
    values = divided(advantages.values, divisor)
    of_attempts = divided(attempts.values, divisor[extra.of.unbind(dim=1)])
    tilted, temperature = torch.cat([values.flatten(), of_attempts]), 0.0
    if reweight is not None:  # as if all were one lifecycle, which is all that RED's sum sees
        counts = torch.cat([table.action_counts.flatten(), extra.action_counts])
        known = torch.cat([advantages.valid.flatten(), attempts.valid])
        tilted, temperature = reweight(tilted.view(1, 1, -1), counts.view(1, 1, -1), known.view(1, 1, -1))
    return Credited(
        table=table,
        returns=returns,
        values=values,
        valid=advantages.valid,
        attempts=of_attempts,
        attempts_valid=attempts.valid,
        tilted=tilted.flatten(),
        temperature=temperature,
        filtered=filtered,
    )


def _only(advantages: Advantages, chosen: Bool[Tensor, "..."]) -> Advantages:
    return Advantages(torch.where(chosen, advantages.values, 0.0), advantages.valid & chosen)
