"""Credit from attempts that share a moment of a lifecycle, against the definition and for what it may not do."""

import math
import random
from dataclasses import replace
from itertools import product
from math import prod

import pytest
import torch

from cod_lightning.credit.baselines import GroupMean, LeaveOneOut, TermsAlone
from cod_lightning.credit.credited import AdaptiveRED, Shared, context_worth
from cod_lightning.credit.returns import EpisodeCredit, TaskCredit, TrajectoryCredit
from cod_lightning.credit.table import EpisodeFacts, episode_table
from cod_lightning.errors import ConfigError
from cod_lightning.methods.asymre import AsymRE
from tests.cases import each
from tests.credit_tables import (
    credited_entries,
    with_attempts,
)

RULES = [
    EpisodeCredit(),
    EpisodeCredit(window=2),
    EpisodeCredit(mean=False, discount=0.6),
    EpisodeCredit(discount=0.6),
    TaskCredit(),
]
BASELINES = [GroupMean(), LeaveOneOut(), AsymRE(shift=-0.2)]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@each("tries", [1, 2, 3, 4])
def test_attempts_and_the_rows_of_a_critic_have_the_expected_gradient_of_the_credit_rule(tries):
    """Every outcome of a lottery that is tried so often, the lifecycle's own try included, and of a second task after it."""
    win, value, total = 0.3, 0.2, 0.0
    for outcome in product((0.0, 1.0), repeat=tries + 1):
        own, later, *more = outcome
        facts = [EpisodeFacts(0, e, None, True, 0, e, reward, 1) for e, reward in enumerate((own, own * later))]
        facts += [EpisodeFacts(0, 2 + m, 0, True, 0, 0, reward, 1) for m, reward in enumerate(more)]
        found = credited_entries(episode_table([facts]), EpisodeCredit(), GroupMean(), criticised=True)
        advantages = [found.known_returns[0].item() - value, *(found.advantages[2:].tolist())]
        chances = [win if won else 1 - win for won in (own, *more)]
        scores = [won - win for won in (own, *more)]
        total += 0.5 * prod(chances) * sum(a * score for a, score in zip(advantages, scores, strict=True))
    assert total == pytest.approx(win * (1 - win) * (0.5 + 0.5 * 0.5), abs=1e-6)


def test_attempts_of_a_single_lifecycle_are_trained_whatever_the_scale():
    facts = [EpisodeFacts(0, 0, None, True, 0, 0, 1.0, 1), EpisodeFacts(0, 1, 0, True, 0, 0, 0.0, 1)]
    table = episode_table([facts] * 2)
    for scale in ("none", "group", "batch"):
        found = credited_entries(table, TaskCredit(), GroupMean(), scale, criticised=True)
        assert found.advantages[2:].tolist() == [-0.5] * 2


def test_the_rows_of_a_critic_have_no_say_in_how_attempts_are_reweighted():
    large = [EpisodeFacts(k, 0, None, True, 0, 0, reward, n) for k, (reward, n) in enumerate([(0.0, 90), (5e5, 1)])]
    attempts = [EpisodeFacts(1, 1 + m, 0, True, 0, 0, 5e5 + m, 1) for m in range(2)]
    with pytest.raises(ConfigError, match=r"model\.reweight"):
        credited_entries(episode_table([large]), TaskCredit(), GroupMean(), reweight=AdaptiveRED())
    for facts in (large, large + attempts):
        plain, tilted = (
            credited_entries(episode_table([facts]), TaskCredit(), GroupMean(), reweight=of, criticised=True)
            for of in (None, AdaptiveRED())
        )
        assert tilted.temperature == 0
        assert torch.equal(tilted.advantages, plain.advantages)


@each("mode", ["group", "batch"])
def test_attempts_are_divided_by_what_their_solve_episode_is_divided_by(mode):
    table = with_attempts(2, missing=0.0)
    raw, scaled = (credited_entries(table, EpisodeCredit(), GroupMean(), m).values for m in ("none", mode))
    returns = EpisodeCredit()(table).values
    for attempt in (~table.own).nonzero().flatten().tolist():
        begun = int(table.begun[attempt])
        alike = table.own & (table.place[:, 0::2] == table.place[begun, 0::2]).all(dim=1)
        divisor = (returns[alike] if mode == "group" else raw[table.own]).std(correction=0).item()
        for entry in (attempt, begun):
            assert scaled[entry].item() == pytest.approx(raw[entry].item() / divisor, abs=1e-5)


def test_attempts_weigh_in_the_tilt_with_their_tokens():
    table = with_attempts(3, missing=0.0)
    raw = credited_entries(table, EpisodeCredit(), GroupMean()).values
    counts = torch.where(table.own, torch.where(raw < 0, 40, 1), torch.where(table.trained, 3, 0))
    heavy = replace(table, action_counts=counts)
    tilted = credited_entries(heavy, EpisodeCredit(), GroupMean(), reweight=AdaptiveRED())
    assert tilted.temperature > 0
    expected = raw * torch.exp(raw / tilted.temperature)
    torch.testing.assert_close(tilted.tilted, expected, atol=1e-6, rtol=1e-5)
    assert abs(float((expected * counts).sum())) < abs(float((raw * counts).sum()))


@each("stored", [math.nan, -math.inf, 1e30])
@each("scale", ["none", "group", "batch"])
@each("baseline", BASELINES)
@each("rule", [*RULES, TrajectoryCredit()])
def test_neither_autocast_nor_what_is_stored_for_a_missing_reward_changes_what_is_credited(
    rule, baseline, scale, stored
):
    table = with_attempts(4)
    dirty = replace(table, rewards=torch.where(table.valid, table.rewards, stored))
    exact = credited_entries(table, rule, baseline, scale, reweight=AdaptiveRED())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = credited_entries(dirty, rule, baseline, scale, reweight=AdaptiveRED())
    assert found.values.dtype == found.returns.values.dtype == torch.float32
    for ours, theirs in zip(
        (found.values, found.tilted, found.valid, found.returns.valid),
        (exact.values, exact.tilted, exact.valid, exact.returns.valid),
        strict=True,
    ):
        assert torch.equal(ours, theirs)
    assert torch.equal(found.returns.values[found.returns.valid], exact.returns.values[exact.returns.valid])
    assert found.returns.values.isfinite().all()
    assert (found.temperature, found.figures()) == (exact.temperature, exact.figures())


def test_a_context_is_worth_what_tasks_with_it_gain_over_those_without_where_both_are_known():
    sums = {"total": [5.0, 0.0, 4.0], "count": [2, 0, 1], "total_without": [1.0, 3.0, 0.0], "count_without": [2, 1, 0]}
    beside = Shared(**{name: torch.tensor(of) for name, of in sums.items()}, attempts=torch.zeros(3))
    gained, known = context_worth(beside)
    assert (gained.tolist(), known.tolist()) == ([2.0, 0.0, 0.0], [True, False, False])


def test_where_terms_alone_train_rewards_of_attempts_have_no_say_either():
    table = with_attempts(0)
    found = credited_entries(table, EpisodeCredit(), TermsAlone())
    assert not found.values.any()
    assert torch.equal(found.valid[~table.own], (table.valid & table.trained)[~table.own])


def test_an_update_after_the_last_task_is_not_measured_by_attempts_that_were_made_before_it():
    own = [(k, e, reward) for k in range(2) for e, reward in enumerate((0.0, 0.0, float(k), 0.0))]
    facts = [EpisodeFacts(k, e, None, True, e % 2, e // 2, reward, 1) for k, e, reward in own]
    attempts = [EpisodeFacts(k, 4, 2, False, 0, 1, 0.25, 1) for k in range(2)]
    alone, found = (
        credited_entries(episode_table([of]), TrajectoryCredit(), GroupMean()) for of in (facts, facts + attempts)
    )
    for k in range(2):
        before, last = ([of.values[of.table.numbers[0, k, e]] for of in (found, alone)] for e in (1, 3))
        assert before[0] != before[1]
        assert last[0] == last[1]


def test_a_sibling_s_update_after_its_last_task_has_nothing_that_attempts_measure_whatever_the_rule_weighs():
    facts = [(0, 0, None, 0, 0, 0.0), (0, 1, None, 1, 0, 0.0), (0, 2, None, 0, 1, 1.0), (0, 3, 2, 0, 1, 0.25)]
    facts += [(1, 0, None, 0, 0, 1.0), (1, 1, None, 1, 0, 0.0)]
    table = episode_table([[EpisodeFacts(k, e, parent, parent is None, *of, 1) for k, e, parent, *of in facts]])
    found = credited_entries(table, TrajectoryCredit(), GroupMean())
    assert float(found.values[table.numbers[0, 0, 1]]) == pytest.approx((1.0 - 1.0) - mean([0.0, 1.0]) + 1.0 - 0.25)


def test_of_two_updates_in_a_row_attempts_without_the_last_one_measure_that_alone():
    own = [(0, 0, 0.0, ""), (1, 0, 0.0, "first"), (1, 0, 0.0, "last"), (0, 1, None, "")]
    packs = [
        [
            EpisodeFacts(k, e, None, True, kind, n, last if r is None else r, 1, name)
            for e, (kind, n, r, name) in enumerate(own)
        ]
        for k, last in enumerate((1.0, 0.0))
    ]
    facts = [one for life in packs for one in life]
    attempt = EpisodeFacts(0, 4, 3, False, 0, 1, 0.25, 1)
    plain, found = (
        credited_entries(episode_table([of]), EpisodeCredit(mean=False), GroupMean())
        for of in (facts, [*facts, attempt])
    )
    first, last = (found.table.numbers[0, 0, e] for e in (1, 2))
    assert found.values[first] == plain.values[first] == 0.5, "the attempt had what it wrote"
    assert found.values[last] == (1.0 - 1.0) - mean([0.0, 0.0]) + 1.0 - 0.25


class ByName:
    """Advantages of a pack's episodes and attempts, which a program may have named, as loops over them."""

    def __init__(self, facts, rule, baseline):
        self.weights, self.baseline = rule.weights(torch.arange(5) % 2).double().tolist(), baseline
        self.own = {(one.sibling, one.episode): one for one in facts if one.parent is None}
        self.attempts = [one for one in facts if one.parent is not None and one.trained]
        self.without = [one for one in facts if not one.trained]
        self.names = {one.compared_with for one in self.attempts} - {""}

    def row(self, one):
        """f -> weight of its reward in the return of an own episode: the rule's, unless the program says others."""
        return dict(enumerate(self.weights[one.episode])) if one.weights is None else dict(one.weights)

    def its_set(self, one):
        """All of its name, where an attempt has it; else what began with it."""
        named = one.compared_with if one.parent is not None else ""
        begun = self.own[one.sibling, one.episode if one.parent is None else one.parent]
        if not named and begun.kind == 0 and begun.compared_with in self.names:
            named = begun.compared_with
        return named or (begun.sibling, begun.episode)

    def rewards_beside(self, one):
        every = [of for of in (*self.own.values(), *self.attempts) if self.its_set(of) == self.its_set(one)]
        return [of.reward for of in every if of.reward is not None]

    def has_attempts(self, one):
        return any(of.reward is not None and self.its_set(of) == self.its_set(one) for of in self.attempts)

    def share(self, one, weight):
        rewards, begun = self.rewards_beside(one), (one.sibling, one.episode if one.parent is None else one.parent)
        moment = [self.own[begun], *(of for of in self.attempts if (of.sibling, of.parent) == begun)]
        num = sum(of.reward is not None for of in moment)
        return weight / num * (one.reward - mean_of_others(one.reward, rewards)) if len(rewards) > 1 else 0.0

    def a_return(self, one):
        row = {one.episode: 0.0} | {e: weight for e, weight in self.row(one).items() if weight}
        rewards = {e: self.own[one.sibling, e].reward for e in row}
        return None if None in rewards.values() else sum(row[e] * reward for e, reward in rewards.items())

    def term(self, one):
        later = one.episode + one.episode % 2
        return self.row(one).get(later, 0.0) * (self.own[one.sibling, later].reward or 0.0)

    def of_siblings(self, one, values):
        """What the baseline makes of the values of all that it is compared with; None where there is nothing."""
        named = {of: at.compared_with or at.position for of, at in self.own.items() if at.kind == one.kind}
        alike = [of for of, name in named.items() if name == named[one.sibling, one.episode]]
        known = {of: values(self.own[of]) for of in alike if self.a_return(self.own[of]) is not None}
        own = known.get((one.sibling, one.episode))
        if own is None or len(known) < 2:
            return None
        every = list(known.values())
        others = mean_of_others(own, every) if isinstance(self.baseline, LeaveOneOut) else mean(every)
        return own - others - getattr(self.baseline, "shift", 0.0)

    def advantage(self, one):
        if one.parent is not None:
            counts = one.trained and one.reward is not None
            begun = self.own[one.sibling, one.parent]
            return self.share(one, self.row(begun).get(one.parent, 0.0)) if counts else 0.0
        plain = self.of_siblings(one, self.a_return)
        rest = self.of_siblings(one, lambda of: self.a_return(of) - self.term(of))
        if plain is None:
            return 0.0
        if one.kind == 0:
            own = self.row(one).get(one.episode, 0.0)
            return rest + self.share(one, own) if self.has_attempts(one) else plain
        place, later = (one.sibling, one.episode + 1), self.own[one.sibling, one.episode + 1]
        having, without = (
            [of.reward for of in every if (of.sibling, of.parent) == place and of.reward is not None]
            for every in (self.attempts, self.without)
        )
        having += [] if later.reward is None else [later.reward]
        worth = self.row(one).get(one.episode + 1, 0.0)
        return rest + worth * (mean(having) - mean(without)) if having and without else plain


def mean_of_others(one, every):
    return (sum(every) - one) / (len(every) - 1)


@each("seed", range(4))
@each("rule", RULES)
@each("baseline", BASELINES)
@each("said", [False, True])
def test_what_a_program_names_is_compared_by_name_and_attempts_with_all_of_theirs_as_the_loop_does(
    seed, rule, baseline, said
):
    rng = random.Random(seed)

    def drawn(kind, position):
        reward = rng.choice([0.0, 1.0, 0.25, 0.5, None])
        return kind, position, reward, 1, rng.choice(["", "", "x", "y"])

    def weights(e):
        """What programs say of the returns of such episodes."""
        return {0: ((0, 1.0), (4, 0.5)), 2: ((1, 0.25), (4, -0.5)), 3: ((3, 1.0), (4, 0.25))}.get(e) if said else None

    packs = [
        [
            EpisodeFacts(*one)
            for k in range(3)
            for one in (
                *((k, e, None, True, *drawn(e % 2, e // 2), weights(e)) for e in range(5)),
                *(
                    (k, 5 + x, 2 * n, rng.random() < 0.7, *drawn(0, n))
                    for x, n in enumerate([0, 1, 1, 2][: rng.randint(0, 4)])
                ),
            )
        ]
        for _ in range(4)
    ]
    table = episode_table(packs)
    found, named = credited_entries(table, rule, baseline), 0
    for g, facts in enumerate(packs):
        loops, together = ByName(facts, rule, baseline), {}
        for one in facts:
            entry = table.numbers[g, one.sibling, one.episode]
            assert float(found.values[entry]) == pytest.approx(loops.advantage(one), abs=1e-6)
            named += isinstance(loops.its_set(one), str) and bool(found.values[entry])
            if one.trained:
                begun = loops.own[one.sibling, one.episode if one.parent is None else one.parent]
                alike = ("siblings", begun.kind, begun.compared_with or begun.position)
                key = ("attempts", loops.its_set(one)) if loops.has_attempts(one) else alike
                together.setdefault(key, set()).add(int(table.siblings[entry]))
        assert all(len(numbers) == 1 for numbers in together.values())
        assert len(set().union(*together.values())) == len(together)
    assert named
