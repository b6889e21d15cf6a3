"""What a proposal is worth, against loops written from the definition."""

import asyncio
from itertools import product

import pytest
from msgspec import structs

from cod_lightning.methods.propose import Learnability
from cod_lightning.rewards import paid
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Task

TASK = Task(id="0", seed=0, spec=None)


def solve(n, success):
    return Episode(
        kind=EpisodeKind.SOLVE, position=n, status=EpisodeStatus.COMPLETED, reward=float(success), success=success
    )


def proposal(n, valid=True):
    status = EpisodeStatus.COMPLETED if valid else EpisodeStatus.MALFORMED
    return Episode(kind=EpisodeKind.PROPOSE, position=n, status=status, reward=0.0, success=valid)


def update(n):
    return Episode(kind=EpisodeKind.UPDATE, position=n, status=EpisodeStatus.COMPLETED, reward=-0.1, success=False)


@pytest.mark.parametrize("outcomes", list(product([False, True], repeat=4)))
def test_it_is_four_p_times_one_minus_p_of_its_own_solve_episodes(outcomes):
    others = [solve(n, True) for n in range(4)], [solve(8 + n, False) for n in range(2)]
    own = [solve(4 + n, success) for n, success in enumerate(outcomes)]
    life = [*others[0], update(3), proposal(4), *own, update(7), proposal(8), *others[1]]
    found = asyncio.run(paid(life, [TASK] * 10, {}, Learnability()))
    p = sum(1 for one in own if one.success) / 4
    assert found[5].parts == {"learnability": pytest.approx(4 * p * (1 - p))}
    assert found[5].reward == found[5].parts["learnability"]
    assert found[11].reward == 0.0
    assert [one for n, one in enumerate(found) if n not in (5, 11)] == [
        one for n, one in enumerate(life) if n not in (5, 11)
    ]


def test_success_counts_whatever_a_reward_was_made_of():
    solved, failed = solve(0, True), solve(1, False)
    solves = [structs.replace(solved, reward=0.0), structs.replace(failed, reward=-3.0)]
    assert asyncio.run(paid([proposal(0), *solves], [TASK] * 2, {}, Learnability()))[0].reward == 1.0


def test_what_is_no_task_earns_nothing_however_the_pack_s_own_was_solved():
    found = asyncio.run(
        paid([proposal(0, valid=False), solve(0, True), solve(1, False)], [TASK] * 2, {}, Learnability())
    )
    assert (found[0].reward, found[0].parts) == (0.0, {"learnability": 0.0})


def test_in_expectation_few_solve_episodes_see_less_by_a_factor_that_is_the_same_for_all_tasks():
    for num, q in product((2, 3, 4), (0.1, 0.5, 0.8)):
        expected = 0.0
        for outcomes in product([False, True], repeat=num):
            chance = 1.0
            for one in outcomes:
                chance *= q if one else 1 - q
            solves = [solve(n, one) for n, one in enumerate(outcomes)]
            expected += chance * asyncio.run(Learnability()(solves, TASK))
        assert expected == pytest.approx((1 - 1 / num) * 4 * q * (1 - q))
