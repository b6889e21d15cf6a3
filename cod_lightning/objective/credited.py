"""Rewards to advantages, all steps: returns -> baseline, with attempts where there are any -> scale -> reweight."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.objective.anchors import with_attempts
from cod_lightning.objective.baselines import Advantages, Baseline, deviation, divided
from cod_lightning.objective.batch import Batch, CreditTable, kind_id
from cod_lightning.objective.returns import CreditRule
from cod_lightning.objective.reweight import AdaptiveRED
from cod_lightning.types import EpisodeKind

Scale = Literal["none", "group", "batch"]

NO_ADVANTAGE = 1e-6
"""Below this an advantage is rounding noise."""


@dataclass(frozen=True, kw_only=True)
class Credited:
    """Advantages of everything in a credit table."""

    values: Float[Tensor, "G K E"]
    """0 where nothing could be compared."""
    valid: Bool[Tensor, "G K E"]
    attempts: Float[Tensor, " X"]
    """0 also where an attempt only measures."""
    attempts_valid: Bool[Tensor, " X"]
    of: Int[Tensor, "X 3"]
    """(g, k, e) of the solve episode beside each attempt."""
    temperature: float = 0.0
    """RED's; 0 where it left the advantages alone."""

    def packs_with_signal(self) -> Bool[Tensor, " G"]:
        """Whether any episode of a pack has an advantage: where all siblings do equally well, none has.

        >>> values = torch.tensor([[[0.5], [-0.5]], [[0.0], [1e-9]]])
        >>> nothing = {"attempts": torch.zeros(0), "attempts_valid": torch.ones(0).bool(), "of": torch.zeros(0, 3).long()}
        >>> Credited(values=values, valid=values.isfinite(), **nothing).packs_with_signal()
        tensor([ True, False])
        """
        signal = (self.values.abs() > NO_ADVANTAGE).flatten(1).any(dim=1)
        signal[self.of[self.attempts.abs() > NO_ADVANTAGE, 0]] = True
        return signal

    def known(self, batch: Batch) -> Bool[Tensor, " B"]:
        """Whether the row's episode has an advantage at all: its return is known, and so is that of a sibling."""
        rows = self.valid[_places(batch)]
        extra = batch.attempt >= 0
        rows[extra] = self.attempts_valid[batch.attempt[extra]]
        return rows | batch.is_replayed

    def signals(self, batch: Batch) -> Bool[Tensor, " B"]:
        """Whether any episode of the row's pack has an advantage; replayed rows bring theirs along."""
        return self.packs_with_signal()[_places(batch)[0]] | batch.is_replayed

    def spread(self, batch: Batch) -> Float[Tensor, "B T"]:
        """Every action token gets its episode's advantage; all other tokens get 0."""
        rows = self.values[_places(batch)]
        extra = batch.attempt >= 0
        rows[extra] = self.attempts[batch.attempt[extra]]
        if batch.given is not None:
            rows = torch.where(batch.is_replayed, batch.given.to(rows), rows)
        return rows[:, None] * batch.action_mask


def _places(batch: Batch) -> tuple[Tensor, ...]:
    """(g, k, e) of each row; (0, 0, 0) of replayed ones, which are in no table."""
    return batch.episode_index.masked_fill(batch.is_replayed[:, None], 0).unbind(dim=1)


def credited(
    table: CreditTable,
    rule: CreditRule,
    baseline: Baseline,
    scale: Scale = "none",
    reweight: AdaptiveRED | None = None,
    kinds: Collection[EpisodeKind] = tuple(EpisodeKind),
) -> Credited:
    """Advantages of the whole table, which is that of all ranks; those of other `kinds` of episodes are not known.

    Attempts are divided by what their solve episode's siblings are divided by, and weigh in RED's sum with their tokens.
    """
    returns, extra = rule(table), table.attempts
    advantages, attempts = with_attempts(table, returns, rule, baseline)
    trained = torch.isin(table.kinds, torch.tensor([kind_id(kind) for kind in kinds]).to(table.kinds))
    advantages = _only(advantages, trained.expand_as(advantages.valid))
    attempts = _only(attempts, trained[extra.of[:, 2]])
    divisor = deviation(advantages, returns, scale).expand_as(advantages.values)
    of_attempts = divisor[extra.of[:, 0], extra.of[:, 1], extra.of[:, 2]]
    values, extra_values = divided(advantages.values, divisor), divided(attempts.values, of_attempts)
    plain = Credited(
        values=values, valid=advantages.valid, attempts=extra_values, attempts_valid=attempts.valid, of=extra.of
    )
    if reweight is None:
        return plain
    tilted, temperature = reweight(
        _joined(values, extra_values),
        _joined(table.action_counts, extra.action_counts),
        _joined(advantages.valid, attempts.valid),
    )
    episodes, of_attempts = tilted.flatten().split([values.numel(), len(extra_values)])
    return replace(plain, values=episodes.view_as(values), attempts=of_attempts, temperature=temperature)


def _only(advantages: Advantages, chosen: Bool[Tensor, "..."]) -> Advantages:
    return Advantages(torch.where(chosen, advantages.values, 0.0), advantages.valid & chosen)


def _joined(episodes: Tensor, attempts: Tensor) -> Tensor:
    """Both as if they were one lifecycle, which is all that RED's sum sees."""
    return torch.cat([episodes.flatten(), attempts]).view(1, 1, -1)
