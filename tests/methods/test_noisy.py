"""A judge whose errors are known, and how often a judge agrees with the environment."""

import asyncio

import pytest

from cod_lightning.methods.noisy import NoisyJudge
from cod_lightning.rewards.judge import Agreement
from cod_lightning.types import EpisodeKind, Task
from tests import records
from tests.cases import each

NUM = 4000


def episode(number, solved, kind=EpisodeKind.SOLVE):
    own = {"reward": float(solved), "success": solved, "feedback": f"w{number}"}
    return records.episode(kind=kind, position=number % 4, **own)


def scores(part, solved, numbers=range(NUM)):
    tasks = [Task(id="0", seed=number, spec=None) for number in numbers]

    async def all_of_them():
        return [await part(episode(n, solved), task) for n, task in zip(numbers, tasks, strict=True)]

    return asyncio.run(all_of_them())


@each(("false_positive", "false_negative"), [(0.0, 0.0), (0.1, 0.3), (0.4, 0.05)])
def test_errors_are_as_frequent_as_asked_on_either_side(false_positive, false_negative):
    part = NoisyJudge(false_positive=false_positive, false_negative=false_negative)
    assert sum(scores(part, solved=False)) / NUM == pytest.approx(false_positive, abs=0.03)
    assert 1 - sum(scores(part, solved=True)) / NUM == pytest.approx(false_negative, abs=0.03)
    share = part.agreement.num_agreed / part.agreement.num
    assert share == pytest.approx(1 - (false_positive + false_negative) / 2, abs=0.02)
    assert (
        part.report()
        == f"noisy judge: agreed with the environment on {part.agreement.num_agreed:,} of 8,000 tasks ({share:.1%})"
    )


def test_the_same_material_gets_the_same_verdict():
    one, same = (scores(NoisyJudge(0.3, 0.3), True, range(200)) for _ in range(2))
    assert one == same
    assert {*one} == {0.0, 1.0}


def test_only_solved_tasks_and_others_are_compared_updates_are_not():
    agreement = Agreement()
    for score, solved, kind in (
        (0.5, True, "solve"),
        (0.4, True, "solve"),
        (0.4, False, "solve"),
        (1.0, True, "update"),
    ):
        agreement.count(score, episode(0, solved, EpisodeKind(kind)))
    assert (agreement.num, agreement.num_agreed) == (3, 2)
    assert NoisyJudge().report() == ""
