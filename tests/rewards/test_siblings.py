"""Parts that compare siblings: when they are asked, what they add, and what their failure costs."""

import asyncio
import math
import re
from pathlib import Path

import pytest

from cod_lightning.datamodules.checks import check_siblings
from cod_lightning.errors import ConfigError, EngineRefused
from cod_lightning.lifecycles import Ask, ConnectTheDots, Program
from cod_lightning.lifecycles.best_of_n import BestOfN
from cod_lightning.methods.attempts import Anchored, Counterfactual
from cod_lightning.methods.noisy import NoisyPairwiseJudge
from cod_lightning.methods.planner import PlanAndSolve
from cod_lightning.methods.propose import ProposeAndSolve
from cod_lightning.rewards import FormatReward, Reward, SiblingReward, WorldReward
from cod_lightning.rewards.base import rewards_of
from cod_lightning.rollout.deadlines import Deadlines
from cod_lightning.rollout.stats import RolloutStats, count_faults
from cod_lightning.types import EpisodeKind, Task
from tests import rewarded
from tests.cases import each
from tests.rewarded import NUM_TASKS

TASK = Task(id="0", seed=1, spec=None)
NUM_SIBLINGS = 4
BOTH = frozenset(EpisodeKind)


class Does(SiblingReward):
    """Calls a function with the episodes."""

    def __init__(self, work, weight=1.0, kinds=frozenset({EpisodeKind.SOLVE})):
        self.work, self.weight, self.kinds = work, weight, kinds

    async def __call__(self, episodes, task):
        found = self.work(episodes, task)
        return await found if asyncio.iscoroutine(found) else found


def numbered(episodes, task):
    return [float(k) for k in range(len(episodes))]


def raising(error):
    def work(episodes, task):
        raise error

    return work


def play(deadlines=None, **more):
    return rewarded.play(deadlines, **{"num_siblings": NUM_SIBLINGS, "num_packs": 2} | more)


def places(groups):
    """Siblings' episodes at each place of the plan."""
    return [place for group in groups for place in zip(*(one.episodes for one in group.lifecycles), strict=True)]


def test_siblings_are_scored_together_once_for_each_place_of_their_kinds():
    asked = []

    def noting(episodes, task):
        asked.append(({one.kind for one in episodes}, {one.position for one in episodes}, task.id, len(episodes)))
        return numbered(episodes, task)

    groups = play(order=Does(noting, 0.5))
    assert sorted(asked) == sorted(
        ({EpisodeKind.SOLVE}, {n}, group.pack.tasks[n].id, NUM_SIBLINGS) for group in groups for n in range(NUM_TASKS)
    )
    plain = places(play())
    for place, before in zip(places(groups), plain, strict=True):
        for k, (one, own) in enumerate(zip(place, before, strict=True)):
            if one.kind is EpisodeKind.UPDATE:
                assert one == own
            else:
                assert one.parts == {"world": own.reward, "order": 0.5 * k}
                assert one.reward == own.reward + 0.5 * k
                assert (one.success, one.turns) == (own.success, own.turns)


def test_scores_of_siblings_join_the_other_parts_and_reach_updates():
    groups = play(world=WorldReward(0.0), form=FormatReward(), order=Does(numbered, kinds=BOTH))
    for place in places(groups):
        for k, one in enumerate(place):
            rest = {"world": 0.0, "form": 0.0} if one.kind is EpisodeKind.SOLVE else {"context": one.parts["context"]}
            assert one.parts == rest | {"order": float(k)}
            assert one.reward == sum(one.parts.values())


def test_a_comparison_that_hangs_is_broken_off_and_a_refusal_ends_the_run():
    groups = play(Deadlines(reward_s=0.05), order=Does(lambda episodes, task: asyncio.sleep(60)))
    assert count_faults(groups) == {"RewardTimeout": 2 * NUM_SIBLINGS}
    with pytest.raises(EngineRefused):
        play(order=Does(raising(EngineRefused("a wrong key"))))


def test_siblings_are_compared_where_there_are_two_and_one_without_a_score_is_missing():
    for place in places(play(num_siblings=2, order=Does(numbered, kinds=BOTH))):
        assert [one.parts["order"] for one in place] == [0.0, 1.0]
    assert play(num_siblings=1, order=Does(raising(AssertionError("asked")))) == play(num_siblings=1)
    groups = play(order=Does(lambda episodes, task: [None, *numbered(episodes, task)[1:]]))
    for group in groups:
        assert [one.failed for one in group.lifecycles] == [True, False, False, False]
        assert group.lifecycles[0].solves[0].error == "RewardFailure: order gave this sibling no score"


@each(
    "work",
    [
        raising(ValueError("no")),
        raising(SystemExit(0)),
        lambda episodes, task: [0.0] * (len(episodes) - 1),
        lambda episodes, task: [math.nan] * len(episodes),
        lambda episodes, task: ["1"] * len(episodes),
        lambda episodes, task: 1.0,
        lambda episodes, task: None,
        lambda episodes, task: [1e308 * 10] * len(episodes),
    ],
)
def test_a_comparison_that_fails_makes_the_rewards_of_its_place_missing_and_no_others(work):
    def failing(episodes, task):
        return work(episodes, task) if episodes[0].position == 1 else numbered(episodes, task)

    groups = play(order=Does(failing))
    for place in places(groups):
        for one in place:
            lost = (one.kind, one.position) == (EpisodeKind.SOLVE, 1)
            assert (one.reward is None) == lost
            assert one.fault == ("RewardFailure" if lost else "")
            assert not lost or "order" in one.error
    assert count_faults(groups) == {"RewardFailure": 2 * NUM_SIBLINGS}


def test_the_means_of_parts_are_over_episodes_that_have_a_reward():
    groups = play(form=FormatReward(), order=Does(lambda episodes, task: [None, *numbered(episodes, task)[1:]]))
    figures = RolloutStats.of(groups, 1.0, 0).figures(in_flight=False)
    for n in range(NUM_TASKS):
        scored = [life.solves[n].parts for group in groups for life in group.lifecycles[1:]]
        for name in ("world", "form", "order"):
            mean = sum(parts[name] for parts in scored) / len(scored)
            assert figures[f"train/reward/{name}/position_{n}"] == pytest.approx(mean)


@each(("most", "scores"), [(2, [0.0, 1.0]), (3, [])])
def test_episodes_that_failed_are_left_out_and_one_alone_has_nothing_to_be_compared_with(most, scores):
    lost: list[int] = []

    class Fails(Reward):
        async def __call__(self, episode, task):
            if episode.position == 0 and len(lost) < most:
                lost.append(1)
                raise ValueError("no")
            return 0.0

    (plain,), (group,) = play(num_packs=1), play(num_packs=1, fails=Fails(), order=Does(numbered))
    for one, own in zip(group.lifecycles, plain.lifecycles, strict=True):
        assert one.solves[0].turns == own.solves[0].turns, "each sibling keeps its own episodes"
    kept = [one for one in group.lifecycles if one.episodes[0].reward is not None]
    assert [one.solves[1].parts["order"] for one in kept] == scores
    assert sum("no sibling is left" in one.episodes[0].error for one in group.lifecycles) == (most == 3)


def test_the_part_of_the_guide_is_one():
    text = (Path(__file__).parents[2] / "docs" / "guides" / "rewards.md").read_text()
    (code,) = (one for one in re.findall("```python\n(.*?)```", text, re.DOTALL) if "SiblingReward" in one)
    made = {}
    exec(code, made)
    for place in places(play(short=made["Shortest"]())):
        if place[0].kind is EpisodeKind.SOLVE:
            fewest = min(len(one.turns) for one in place)
            assert [one.parts["short"] for one in place] == [float(len(one.turns) == fewest) for one in place]


class FirstSiblingOnly(Program):
    """Lifecycles of which the first alone goes on after the first task."""

    async def __call__(self, agent, pack):
        for task in pack.tasks if agent.sibling == 0 else pack.tasks[:1]:
            await agent.rewrite(await agent.solve(task))


def test_siblings_of_other_lengths_are_compared_where_there_are_several():
    (group,) = play(num_packs=1, program=FirstSiblingOnly(), order=Does(numbered))
    first, *others = group.lifecycles
    assert [one.episodes[0].parts["order"] for one in group.lifecycles] == [0.0, 1.0, 2.0, 3.0]
    assert [len(one.episodes) for one in others] == [2, 2, 2]
    assert len(first.episodes) == 2 * NUM_TASKS
    assert all("no sibling is left" in one.error for one in first.solves[1:])


class SumsUp(Program):
    """A text about the whole pack comes after its last task."""

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            await agent.solve(task)
        await agent.ask(pack.tasks[-1], Ask())


def test_a_text_after_the_last_task_is_compared_as_one_about_it():
    seen = []

    def noted(episodes, task):
        seen.append(task.id)
        return numbered(episodes, task)

    (group,) = play(num_packs=1, program=SumsUp(), order=Does(noted, kinds=frozenset({EpisodeKind.WRITE})))
    assert seen == [group.pack.tasks[-1].id]
    assert [one.episodes[-1].parts["order"] for one in group.lifecycles] == [0.0, 1.0, 2.0, 3.0]


@each("program", [Anchored(), Counterfactual(), BestOfN(), ProposeAndSolve(), ProposeAndSolve(proposes=False)])
def test_attempts_and_proposed_tasks_which_no_sibling_shares_are_refused_beside_it(program):
    check_siblings(rewards_of({"form": FormatReward()}), program, 4)
    for of_pack in (ConnectTheDots(), PlanAndSolve()):
        check_siblings(rewards_of({"pairs": NoisyPairwiseJudge()}), of_pack, 4)
    with pytest.raises(ConfigError, match=r"data\.rewards\.pairs .* none with data\.program="):
        check_siblings(rewards_of({"pairs": NoisyPairwiseJudge()}), program, 4)
