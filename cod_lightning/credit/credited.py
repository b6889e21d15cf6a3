"""Rewards of a rollout -> the advantage of each episode, once: returns -> baseline, with attempts if any -> scale -> reweight.

Attempts: episodes at the same position start from different contexts, so their mean is not strictly a baseline (a weak point that
arXiv 2606.20002 names). Attempts from a snapshot remove that difference for the one reward that they measure. A credit
rule is a weighted sum of rewards, R_e = sum_f w_ef r_f; of each return one term is compared with attempts and the rest
with siblings, as before:

    solve j, anchored       A = B(R - w r_j)_e + w/M (r_j - mean of the other attempts)          w = w_ee
    attempt m at task j     A = w/M (r_m - mean of the others)                                   w of that solve episode
    update, measured        A = B(R - w r_f)_e + w (mean with its context - mean without)        w = w_ef, f the next solve

B is the run's baseline over siblings, M the number of attempts that have a reward, the lifecycle's own included; the others
are those M, or all of a name where the program gives one. An attempt's rewards say nothing about other attempts' tokens, nor
the mean without the context about the words that wrote it, so each is a baseline: with leave-one-out over siblings the
expected gradient is that of the credit rule alone (each of M attempts weighs 1/M of the one), and only its noise differs.
Where no attempt has a reward, siblings decide as before. A critic's return of an anchored solve is for the same reason
R - (M-1) w/M (r_j - mean of the other attempts), which has the mean of R; of updates it needs no measure.

Source: the local re-rolls of Memory-R2 (arXiv 2605.21768), which compare what came of one intermediate state; the formula
is ours.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.credit.baselines import Baseline, TermsAlone, by_packs, deviation, divided, mean
from cod_lightning.credit.returns import CreditRule
from cod_lightning.credit.table import EpisodeTable, PerEpisode, kind_id
from cod_lightning.errors import ConfigError
from cod_lightning.types import EpisodeKind

Scale = Literal["none", "group", "batch"]

NO_ADVANTAGE = 1e-6
"""Below this an advantage is rounding noise."""
_LEAST, _MOST = 0.8, 100.0
"""Temperatures of RED's strongest tilt, and of its weakest."""
_WIDTH, _ROUNDS = 0.05, 20
"""Of its bisection: the interval at which it stops, and halvings at most."""
_TRIGGER = 1e-6
"""Of sum_e |s_e n_e|, beyond which a sum below 0 is no rounding noise."""


@dataclass(frozen=True)
class AdaptiveRED:
    """Replaces s by s * exp(s / T) when sum_e s_e n_e < 0, with T such that sum_e s_e exp(s_e / T) n_e is about 0.

    n_e is the episode's number of action tokens; the sum runs over the whole rollout. The tilted sum falls as T rises, so
    T is found by bisection; it may end at a bound. Source: arXiv 2606.20002. Ours triggers only clearly below 0, because
    with equal lengths a centred sum is rounding noise of either sign.

    >>> two = torch.ones(1, 2, 1, dtype=torch.bool)
    >>> AdaptiveRED()(torch.tensor([[[0.5], [-0.5]]]), torch.tensor([[[1], [2]]]), two)[0].flatten()
    tensor([ 0.7052, -0.3545])
    """

    def __call__(
        self, advantages: Float[Tensor, "*F"], counts: Int[Tensor, "*F"], valid: Bool[Tensor, "*F"]
    ) -> tuple[Float[Tensor, "*F"], float]:
        """Tilted advantages of a rollout, that of all ranks, and T; 0 where they were left alone.

        Raises `ConfigError` where they are too large to be tilted.
        """
        s = torch.where(valid, advantages, 0.0).double()
        n = counts.double()
        if float((s * n).sum()) >= -_TRIGGER * float((s * n).abs().sum()):
            return advantages, 0.0
        temperature = _balancing(s, n)
        tilted = (s * torch.exp(s / temperature)).to(advantages)
        if not tilted.isfinite().all():  # as infinite ones their rows would be left out
            expected = f"advantages of about 1, not of {float(s.max()):.3g}, for the exponential of T={temperature:.3g}"
            raise ConfigError(
                "model.reweight", type(self).__name__, expected, "Make rewards smaller, or set model.scale=batch."
            )
        return tilted, temperature


def _balancing(s: Float[Tensor, "*F"], n: Float[Tensor, "*F"]) -> float:
    """The temperature of `AdaptiveRED`, by bisection."""
    low, high = _LEAST, _MOST
    for _ in range(_ROUNDS):
        if high - low < _WIDTH:
            break
        middle = (low + high) / 2
        if float((s * torch.exp(s / middle) * n).sum()) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@dataclass(frozen=True, kw_only=True)
class Credited:
    """Advantages of every entry of a table."""

    table: EpisodeTable
    returns: PerEpisode
    """[F], of lifecycles' own episodes; attempts have none."""
    values: Float[Tensor, " F"]
    """Before the reweighting; 0 where nothing could be compared, and where an attempt only measures."""
    valid: Bool[Tensor, " F"]
    """Where there is an advantage: the episode's return is known, and that of a sibling."""
    tilted: Float[Tensor, " F"]
    """After the reweighting."""
    of_equals: Float[Tensor, " F"] | float = 0.0
    """What each value would be if all siblings did equally well."""
    temperature: float = 0.0
    """RED's; 0 where it left the advantages alone."""
    compares: bool = True
    """Whether siblings are compared, so that a pack in which they do equally well has no signal."""
    filtered: bool = False
    """As `Credit.filtered`."""
    criticised: Bool[Tensor, " F"] | None = None
    """Episodes to whose tokens a critic gives advantages where their return is known; None: there is no critic."""
    of_attempts: Float[Tensor, " F"] | float = 0.0
    """Of each return, what the attempts beside its episode are credited with in place of it."""

    @cached_property
    def packs_with_signal(self) -> Bool[Tensor, " G"]:
        """Whether siblings differ in any episode of a pack; where they are not compared, whether any episode is trained on."""
        return self._of_packs((self.values - self.of_equals).abs() > NO_ADVANTAGE if self.compares else self.valid)

    @property
    def advantages(self) -> Float[Tensor, " F"]:
        """What rows of each episode get; NaN where there is no advantage."""
        return self.tilted.masked_fill(~self.unfiltered(self.valid), math.nan)

    @property
    def trained(self) -> Bool[Tensor, " F"]:
        """Which episodes are in updates."""
        known = ~self.advantages.isnan()
        return known if self.criticised is None else known | self.known_returns.isfinite()

    @property
    def known_returns(self) -> Float[Tensor, " F"]:
        """A critic's returns of own episodes; NaN where they are not known, of kinds that are not trained on, in packs that are
        filtered, and of attempts."""
        known = self.unfiltered(self.returns.valid if self.criticised is None else self.returns.valid & self.criticised)
        return (self.returns.values - self.of_attempts).masked_fill(~known, math.nan)

    @cached_property
    def group_returns(self) -> Float[Tensor, " F"]:
        """Mean return of what each own episode is compared with, itself included."""
        means = torch.zeros_like(self.returns.values)
        for entries, there, of in by_packs(self.table, self.returns):
            means[entries[there]] = mean(of).to(means).expand_as(of.values)[there]
        return means

    def figures(self) -> dict[str, float]:
        """What a training logs of it."""
        signal = self.packs_with_signal[self._of_packs(self.valid & self.table.own)]
        silent = 1 - float(signal.sum()) / max(1, len(signal))
        rewards, known = self.table.solved()
        count, total = known.sum(dim=(0, 1)), rewards.sum(dim=(0, 1))
        return {
            "train/lifecycles": float(len(self.table.place[:, :2].unique(dim=0))),
            "train/red_temperature": self.temperature,
            # a critic needs no pack in which siblings are compared
            **({"train/zero_variance_packs": silent} if self.criticised is None or len(signal) else {}),
            **{f"train/reward/position_{n}": float(total[n] / count[n]) for n in range(len(count)) if count[n]},
        }

    def unfiltered(self, chosen: Bool[Tensor, " F"]) -> Bool[Tensor, " F"]:
        """The chosen entries without those of packs that are filtered."""
        return chosen & self.packs_with_signal[self.table.place[:, 0]] if self.filtered else chosen

    def beside(self, others: "Credited", table: EpisodeTable) -> "Credited":
        """Of these packs and of `others` behind them, both as they are; the table has all."""
        order = torch.cat([self.table.own, others.table.own]).logical_not().sort(stable=True).indices

        def joined(of: Callable[[Credited], Tensor | float]) -> Tensor:
            return torch.cat([torch.as_tensor(of(one)).expand(len(one.table)) for one in (self, others)])[order]

        return replace(
            self,
            table=table,
            returns=PerEpisode(joined(lambda one: one.returns.values), joined(lambda one: one.returns.valid)),
            values=joined(lambda one: one.values),
            valid=joined(lambda one: one.valid),
            tilted=joined(lambda one: one.tilted),
            of_equals=joined(lambda one: one.of_equals),
            criticised=None if self.criticised is None else joined(lambda one: cast(Tensor, one.criticised)),
            of_attempts=joined(lambda one: one.of_attempts),
        )

    def _of_packs(self, chosen: Bool[Tensor, " F"]) -> Bool[Tensor, " G"]:
        """Packs with any of the chosen entries."""
        return torch.zeros(self.table.num_packs, dtype=torch.bool).index_fill(0, self.table.place[chosen, 0], True)


@dataclass(frozen=True)
class Credit:
    """How a training credits episodes: called with the table of a rollout, that of all ranks, it gives `Credited`.

    Attempts are divided by what their solve episode's siblings are divided by, and weigh in RED's sum with their tokens.
    """

    rule: CreditRule
    baseline: Baseline
    scale: Scale = "none"
    reweight: AdaptiveRED | None = None
    kinds: tuple[EpisodeKind, ...] = tuple(EpisodeKind)
    """Episodes that are trained on; of others nothing is known."""
    filtered: bool = False
    """Whether episodes of packs without signal have no advantage (the filtering half of DAPO's dynamic sampling, arXiv 2503.14476;
    the other half is `data.resample_packs`)."""
    criticised: bool = False
    """Whether a critic gives tokens of lifecycles' own episodes their advantages."""
    compares_siblings: bool = False
    """Whether the loss compares siblings (`EpisodeTable.siblings`), which are then in one update."""

    def without(self, kind: EpisodeKind) -> "Credit":
        """The same without episodes of that kind."""
        return replace(self, kinds=tuple(one for one in self.kinds if one is not kind))

    def __call__(self, table: EpisodeTable) -> Credited:
        """Advantages of the whole table."""
        plain = self._scaled(self.compared(table))
        if self.reweight is None:
            return plain
        its = plain.valid & ~plain.returns.valid if self.criticised else plain.valid  # a critic's rows are not its own
        tilted, temperature = self.reweight(plain.values, table.action_counts, plain.unfiltered(its))
        return replace(plain, tilted=tilted, temperature=temperature)

    def compared(self, table: EpisodeTable) -> Credited:
        """Advantages as the baseline has them, in units of reward: what it takes to see which packs have a signal."""
        returns = self.rule(table)
        _check_finite(returns, "model.credit", self.rule)
        found, of_attempts = with_attempts(table, returns, self.rule, self.baseline)
        _check_finite(found, "model.baseline", self.baseline)
        chosen = torch.isin(table.kinds, torch.tensor([kind_id(kind) for kind in self.kinds]))
        valid = found.valid & chosen
        values = torch.where(valid, found.values, 0.0)
        return Credited(
            table=table,
            returns=returns,
            values=values,
            valid=valid,
            tilted=values,
            of_equals=torch.where(valid & table.own, self.baseline.of_equals, 0.0),
            compares=self.baseline.compares,
            filtered=self.filtered,
            criticised=chosen if self.criticised else None,
            of_attempts=of_attempts,
        )

    def _scaled(self, plain: Credited) -> Credited:
        """Divided by standard deviations, if advantages are in units of reward."""
        table, scale = plain.table, self.scale
        if scale == "none" or not self.baseline.scales:
            return plain
        own, divisor = PerEpisode(plain.values, plain.valid & table.own), torch.ones_like(plain.values)
        if scale == "batch":
            divisor *= deviation(own, plain.returns, scale)
        else:
            for entries, there, of in by_packs(table, plain.returns):
                divisor[entries[there]] = deviation(own, of, scale).expand_as(of.values)[there]
        divisor = divisor[table.begun]
        values, of_equals = divided(plain.values, divisor), divided(torch.as_tensor(plain.of_equals), divisor)
        return replace(plain, values=values, tilted=values, of_equals=of_equals)


def _check_finite(found: PerEpisode, key: str, part: CreditRule | Baseline) -> None:
    """Raise `ConfigError` where what is known is no number: rows with it would be left out as those without an advantage are."""
    if not found.values[found.valid].isfinite().all():
        expected = "finite numbers for all episodes that it calls valid, and it gives NaN or infinity for some"
        raise ConfigError(key, type(part).__name__, expected, "Correct it; of equal rewards a deviation is 0.")


@dataclass(frozen=True)
class Shared:
    """Sums over the episodes that are taken with each of F, which is one of them."""

    total: Float[Tensor, " F"]
    """Rewards of all that had the context."""
    count: Float[Tensor, " F"]
    attempts: Float[Tensor, " F"]
    """Number of those that are not a lifecycle's own."""
    total_without: Float[Tensor, " F"]
    count_without: Float[Tensor, " F"]


def shared(table: EpisodeTable, sets: Int[Tensor, " F"]) -> Shared:
    """The sums over entries of one number, in float64."""
    _, at = torch.unique(sets, return_inverse=True)
    rewards, own = table.known_rewards.double(), table.own
    ones = torch.ones_like(rewards)

    def summed(values: Float[Tensor, " F"], chosen: Bool[Tensor, " F"]) -> Float[Tensor, " F"]:
        kept = torch.where(chosen & table.valid, values, 0.0)
        return torch.zeros_like(rewards).index_put((at,), kept, accumulate=True)[at]

    same, without = table.trained & ~own, ~table.trained
    attempts = summed(ones, same)
    return Shared(
        total=summed(rewards, own) + summed(rewards, same),
        count=summed(ones, own) + attempts,
        attempts=attempts,
        total_without=summed(rewards, without),
        count_without=summed(ones, without),
    )


def with_attempts(
    table: EpisodeTable, returns: PerEpisode, rule: CreditRule, baseline: Baseline
) -> tuple[PerEpisode, Float[Tensor, " F"]]:
    """Advantages of all F entries, those of `baseline` alone where there are no attempts; and `Credited.of_attempts`."""
    plain, counts = baseline.of_all(table, returns), table.valid & table.trained & ~table.own
    if table.own.all():
        return plain, torch.zeros_like(returns.values)
    if isinstance(baseline, TermsAlone):
        return PerEpisode(plain.values, plain.valid | counts), torch.zeros_like(returns.values)
    begun, beside = shared(table, table.begun), shared(table, table.beside)
    rewards = table.known_rewards.double()
    (own, after), later = torch.zeros(2, len(table), dtype=torch.float64), torch.arange(len(table))
    """Its own weight in each return, that of the solve episode that comes next, and which that is; of the last, itself."""
    solves, updates = (table.kinds == kind_id(kind) for kind in (EpisodeKind.SOLVE, EpisodeKind.UPDATE))
    is_last = torch.zeros_like(updates)
    """Which are the last update before a solve episode: what the one before it wrote, attempts without the last one had, too."""
    for entries, weights in rule.by_lifecycles(table):
        place, num = next_solve(table.kinds[entries[0]]), updates[entries[0]].cumsum(0)
        own[entries], after[entries] = weights.diagonal(), weights.gather(1, place[:, None]).squeeze(1)
        later[entries], is_last[entries] = entries[:, place], num[place] == num
    updates &= is_last
    mean_of_others = (beside.total - rewards) / (beside.count - table.valid.double()).clamp_min(1)
    anchored = own[table.begun] / begun.count.clamp_min(1) * (rewards - mean_of_others)
    worth, known = context_worth(begun)
    term = torch.where(solves, own * rewards, torch.where(updates, after * rewards[later], 0.0))
    """What attempts measure of each return."""
    instead = torch.where(solves, anchored, torch.where(updates, after * worth[later], 0.0))
    """What takes its place."""
    measured = torch.where(solves, beside.attempts > 0, updates & known[later])

    rest = baseline.of_all(table, PerEpisode(returns.values - term, returns.valid))
    values = torch.where(measured & rest.valid, rest.values + instead, plain.values)
    counts &= beside.count >= 2
    of_attempts = ((begun.count - 1).clamp_min(0) * anchored).to(plain.values)
    return PerEpisode(torch.where(counts, anchored, values).to(plain.values), plain.valid | counts), of_attempts


def next_solve(kinds: Int[Tensor, " E"]) -> Int[Tensor, " E"]:
    """Index of the first solve episode after each episode; of the last solve episode, and where there is none, its own.

    >>> next_solve(torch.tensor([0, 1, 0, 0, 1, 0]))
    tensor([2, 2, 3, 5, 5, 5])
    """
    solves = (kinds == kind_id(EpisodeKind.SOLVE)).nonzero().squeeze(1)
    own = torch.arange(len(kinds), device=kinds.device)
    places = torch.searchsorted(solves, own, right=True)
    return solves[places.clamp_max(len(solves) - 1)] if len(solves) else own


def context_worth(beside: Shared) -> tuple[Float[Tensor, " F"], Bool[Tensor, " F"]]:
    """Mean reward of a solve episode's task with its context less that without it, and where both are known."""
    known = (beside.count > 0) & (beside.count_without > 0)
    gained = beside.total / beside.count.clamp_min(1) - beside.total_without / beside.count_without.clamp_min(1)
    return torch.where(known, gained, 0.0), known
