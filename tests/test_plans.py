"""The order of episodes as data: what ships, what is refused, and credit under any order against loops from the definition."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.errors import ConfigError
from cod_lightning.objective.anchors import next_solve
from cod_lightning.objective.baselines import GroupMean, LeaveOneOut, RoleMean
from cod_lightning.objective.batch import AttemptTable, CreditTable
from cod_lightning.objective.credited import credited
from cod_lightning.objective.returns import EpisodeCredit, TaskCredit, TrajectoryCredit
from cod_lightning.plans import LifecyclePlan, PlannedEpisode, ProposeAndSolve, UpdateEvery, planned
from cod_lightning.types import EpisodeKind
from tests.credit_tables import cells, random_table, rewards_to_go

SOLVE, UPDATE, PROPOSE = EpisodeKind.SOLVE, EpisodeKind.UPDATE, EpisodeKind.PROPOSE


@dataclass(frozen=True)
class Made(LifecyclePlan):
    """Whatever order it is given."""

    episodes: tuple[tuple[EpisodeKind, int], ...]

    def order(self, num_tasks):
        return [PlannedEpisode(kind, position) for kind, position in self.episodes]


@given(num_tasks=st.integers(1, 40))
def test_the_paper_s_plan_is_solve_and_update_in_turn_and_ends_with_a_solve(num_tasks):
    kinds = [kind for kind, _ in planned(UpdateEvery(), num_tasks)]
    assert kinds == ([SOLVE, UPDATE] * num_tasks)[:-1]


@given(num_tasks=st.integers(1, 40), every=st.integers(1, 12))
def test_an_update_follows_every_nth_task_but_the_last_and_shorter_packs_agree(num_tasks, every):
    order = planned(UpdateEvery(every=every), num_tasks)
    assert [p for kind, p in order if kind is UPDATE] == [n for n in range(num_tasks - 1) if (n + 1) % every == 0]
    longer = planned(UpdateEvery(every=every), num_tasks + 1)
    assert longer[: len(order)] == order


@pytest.mark.parametrize(
    ("episodes", "expected"),
    [
        (((SOLVE, 0), (SOLVE, 1), (UPDATE, 1)), "a solve episode at the end"),
        (((SOLVE, 0), (UPDATE, 0)), "one solve episode for each of tasks 0 to 1"),
        (((SOLVE, 1), (SOLVE, 0)), "one solve episode for each of tasks 0 to 1, in this order"),
        (((SOLVE, 0), (SOLVE, 0), (SOLVE, 1)), "one solve episode for each"),
        (((SOLVE, 0), (UPDATE, 0), (UPDATE, 0), (SOLVE, 1)), "no episode twice"),
        (((UPDATE, 0), (SOLVE, 0), (SOLVE, 1)), "update 0 between solve 0 and the next solve"),
        (((SOLVE, 0), (SOLVE, 1), (UPDATE, 0), (SOLVE, 2)), "update 0 between solve 0 and the next solve"),
        (((SOLVE, 0), (UPDATE, 1), (SOLVE, 1)), "update 1 between solve 1 and the next solve"),
        (((SOLVE, 0), (PROPOSE, 0), (SOLVE, 1)), "solve 0 directly after propose 0"),
        (((PROPOSE, 1), (SOLVE, 0), (SOLVE, 1)), "solve 1 directly after propose 1"),
        (((SOLVE, 0), (PROPOSE, 1), (UPDATE, 0), (SOLVE, 1)), "solve 1 directly after propose 1"),
        (((SOLVE, 0), (SOLVE, 1), (PROPOSE, 2)), "solve 2 directly after propose 2"),
    ],
)
def test_an_order_that_makes_no_lifecycle_is_refused_with_key_value_and_remedy(episodes, expected):
    num_tasks = 1 + max(1, *(position for kind, position in episodes if kind is not PROPOSE))
    with pytest.raises(
        ConfigError, match=f"data.plan is Made for {num_tasks} tasks .*; expected {expected}"
    ) as refused:
        planned(Made(episodes), num_tasks)
    assert "\n" not in str(refused.value)
    assert refused.value.remedy


@given(rounds=st.integers(1, 9), solves=st.integers(2, 6), proposes=st.booleans(), updates=st.booleans())
def test_a_proposal_is_solved_as_often_as_said_and_an_update_follows_unless_it_is_the_last(
    rounds, solves, proposes, updates
):
    plan, expected = ProposeAndSolve(solves=solves, proposes=proposes), []
    for number in range(rounds):
        expected += [(PROPOSE, number * solves)] if proposes else []
        for n in range(number * solves, (number + 1) * solves):
            expected.append((SOLVE, n))
            assert plan.task_of(n) == number * solves
        expected += [(UPDATE, (number + 1) * solves - 1)] if updates and number < rounds - 1 else []
    assert list(planned(plan, rounds * solves, updates)) == expected


@pytest.mark.parametrize("plan", [UpdateEvery(every=2), ProposeAndSolve(), ProposeAndSolve(proposes=False)], ids=str)
def test_outside_training_nothing_is_proposed_and_every_task_is_one_of_the_pack_s_own(plan):
    order = planned(plan.held_out, 7)
    assert PROPOSE not in {kind for kind, _ in order}
    assert [plan.held_out.task_of(n) for n in range(7)] == list(range(7))


def test_solve_episodes_of_a_proposal_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match=r"data\.plan\.solves is 1; expected at least 2"):
        ProposeAndSolve(solves=1)
    with pytest.raises(ConfigError, match=r"data\.plan\.solves is 4; expected a divisor of the 6 tasks"):
        planned(ProposeAndSolve(), 6)


@pytest.mark.parametrize("every", [0, -1])
def test_updates_after_no_task_are_refused(every):
    with pytest.raises(ConfigError, match=rf"data\.plan\.every is {every}; expected at least 1"):
        UpdateEvery(every=every)


TABLES = {
    "the paper's": lambda seed: random_table(seed),
    "every second task": lambda seed: random_table(seed, tasks=6, plan=UpdateEvery(every=2)),
    "no update at all": lambda seed: random_table(seed, plan=UpdateEvery(every=9)),
    "proposals": lambda seed: random_table(seed, tasks=6, plan=ProposeAndSolve(solves=2)),
    "a fourth kind": lambda seed: replace(random_table(seed), kinds=torch.tensor([3, 0, 1, 0, 0, 3, 0])),
}
RULES = [EpisodeCredit(), EpisodeCredit(style="discounted", discount=0.5), TrajectoryCredit(), TaskCredit()]
tables = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


@tables
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("discount", [None, 0.6])
def test_credit_is_to_go_over_later_solves_plus_an_episode_s_own_reward_under_any_plan(table, seed, discount):
    table = table(seed)
    rule = EpisodeCredit() if discount is None else EpisodeCredit(style="discounted", discount=discount)
    found = rule(table)
    for g, k, e in cells(table):
        entries = rewards_to_go(table, g, k, e)
        assert found.valid[g, k, e].item() == (None not in entries)
        if None not in entries:
            expected = sum(entries) / len(entries)
            if discount is not None:
                expected = sum(discount**n * reward for n, reward in enumerate(entries))
            assert found.values[g, k, e].item() == pytest.approx(expected, abs=1e-5)


@tables
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_neither_role_is_paid_by_the_other(rule, table):
    table = table(4)
    proposals = table.kinds == 2
    for ours, theirs in ((proposals, ~proposals), (~proposals, proposals)):
        other = torch.where(theirs, table.rewards + 5, table.rewards)
        before, after = rule(table), rule(replace(table, rewards=other))
        known = before.valid & ours
        assert torch.equal(before.values[known], after.values[known])


@tables
def test_a_trajectory_is_the_sum_of_its_solves_whatever_else_the_plan_has(table):
    table = table(3)
    found = TrajectoryCredit()(table)
    for g, k, e in cells(table):
        solves = [f for f in range(len(table.kinds)) if table.kinds[f] == 0]
        if table.kinds[e] == 2:
            solves = [e]  # a proposal is credited with its own reward
        known = all(table.valid[g, k, f] for f in solves) and bool(table.valid[g, k, e])
        assert found.valid[g, k, e].item() == known
        if known:
            assert found.values[g, k, e].item() == pytest.approx(
                sum(table.rewards[g, k, f].item() for f in solves), abs=1e-5
            )


@tables
def test_a_baseline_by_kind_compares_with_the_other_lifecycles_returns_of_that_kind(table):
    table = table(1)
    returns = EpisodeCredit()(table)
    found = RoleMean()(returns)
    for g, k, e in cells(table):
        others = [
            returns.values[g, j, f].item()
            for j in range(table.valid.shape[1])
            for f in range(len(table.kinds))
            if j != k and table.kinds[f] == table.kinds[e] and returns.valid[g, j, f]
        ]
        comparable = bool(returns.valid[g, k, e]) and bool(others)
        assert found.valid[g, k, e].item() == comparable
        if comparable:
            expected = returns.values[g, k, e].item() - sum(others) / len(others)
            assert found.values[g, k, e].item() == pytest.approx(expected, abs=1e-5)


def attempted(table: CreditTable, places, same) -> CreditTable:
    rng = torch.Generator().manual_seed(9)
    attempts = AttemptTable(
        of=torch.tensor(places),
        same_context=torch.tensor(same),
        rewards=torch.rand(len(places), generator=rng),
        valid=torch.ones(len(places), dtype=torch.bool),
        action_counts=torch.ones(len(places), dtype=torch.long),
    )
    return replace(table, attempts=attempts)


@pytest.mark.parametrize("baseline", [GroupMean(), LeaveOneOut()], ids=str)
def test_a_context_is_measured_by_the_next_task_also_where_updates_are_rare(baseline):
    """Plan solve 0, solve 1, update 1, solve 2, ...: attempts without the context at solve 2 measure update 1."""
    table = random_table(2, tasks=4, missing=0.0, plan=UpdateEvery(every=2))
    assert table.kinds.tolist() == [0, 0, 1, 0, 0]
    assert next_solve(table.kinds).tolist() == [1, 3, 3, 4, 4]
    measured = attempted(table, [(0, 0, 3), (0, 0, 3)], [False, False])
    found, weights = credited(measured, EpisodeCredit(), baseline), EpisodeCredit().weights(table.kinds)
    w, own = weights[2, 3].item(), table.rewards[0, 0, 3].item()
    returns = EpisodeCredit()(table).values[0, :, 2] - w * table.rewards[0, :, 3]
    others = returns[1:] if isinstance(baseline, LeaveOneOut) else returns
    expected = returns[0] - others.mean() + w * (own - measured.attempts.rewards.mean())
    assert found.values[0, 0, 2].item() == pytest.approx(expected.item(), abs=1e-5)
    plain = credited(table, EpisodeCredit(), baseline)
    assert torch.equal(found.values[1:], plain.values[1:])


def test_each_task_by_itself_needs_no_order():
    table = random_table(0, plan=UpdateEvery(every=2))
    assert torch.equal(TaskCredit()(table).values, table.known_rewards)


def test_a_mechanism_without_updates_leaves_the_solve_episodes_of_a_plan():
    assert planned(UpdateEvery(), 3, updates=False) == tuple(PlannedEpisode(EpisodeKind.SOLVE, n) for n in range(3))
