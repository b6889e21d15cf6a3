"""Parts of a reward: their sum, and what becomes of an episode whose part fails."""

import asyncio
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from jsonargparse import ArgumentParser
from msgspec import structs

from cod_lightning.errors import FAULT_LOG, EngineRefused, Stopped
from cod_lightning.lifecycles import Program
from cod_lightning.rewards import ContextReward, FormatReward, Reward, WorldReward
from cod_lightning.rewards.base import rewards_of, scored
from cod_lightning.rollout.stats import RolloutStats, count_faults
from cod_lightning.types import EpisodeKind, EpisodeStatus, Task
from examples.studies.new_facts import NewFacts
from tests import records
from tests.cases import each
from tests.rewarded import play

ROOT = Path(__file__).parents[2]
TASK = Task(id="0", seed=1, spec=None)


def turn(num_tokens=3):
    return records.turn("", (0.0,) * num_tokens)


def solved(reward: float | None = 1.0, status=EpisodeStatus.COMPLETED, **more):
    return records.episode(status=status, reward=reward, success=True, **more)


def score(episode, limit_s=None, **parts):
    return asyncio.run(scored(episode, TASK, rewards_of(parts), limit_s))


class Does(Reward):
    def __init__(self, work, weight=1.0):
        self.work, self.weight = work, weight

    async def __call__(self, episode, task):
        found = self.work()
        return await found if asyncio.iscoroutine(found) else found


@dataclass(frozen=True)
class Late(Program):
    """The context is rewritten in view of the first task, after the second."""

    async def __call__(self, agent, pack):
        first, _ = [await agent.solve(task) for task in pack.tasks[:2]]
        await agent.rewrite(first)


def test_a_part_is_shown_the_task_that_a_rewrite_is_about():
    asked = []

    class Noting(Reward):
        kinds = frozenset({EpisodeKind.UPDATE})

        async def __call__(self, episode, task):
            asked.append((episode.position, task.id))
            return 0.0

    ((life,),) = [group.lifecycles for group in play(num_packs=1, num_siblings=1, program=Late(), noting=Noting())]
    assert asked == [(0, "0")]
    assert not life.failed


class OfAList(Does):
    kinds = ["solve"]  # noqa: RUF012  (what a newcomer writes)

    def __init__(self):
        super().__init__(lambda: 1.0)


class Plain(Reward):
    def __call__(self, episode, task):
        return 1.0


class Speechless(Exception):
    """An exception whose message raises."""

    def __str__(self):
        raise KeyboardInterrupt


def raising(error):
    def work():
        raise error

    return Does(work)


def test_without_further_parts_an_episode_stays_the_same_and_without_a_reward_it_is_never_scored():
    episode = solved(0.3)
    assert score(episode) is episode
    assert play(own=Does(lambda: 0.0)) != play()
    episode = solved(None, EpisodeStatus.FAILED, error="WorldHung: x")
    assert score(episode, bonus=raising(AssertionError("asked"))) is episode


def test_a_reward_is_the_sum_of_its_weighted_parts_and_success_stays_the_worlds():
    episode = score(
        solved(0.5), world=WorldReward(2.0), bonus=Does(lambda: 0.25, -1.0), two=Does(lambda: {"a": 1, "b": 0.5}, -2.0)
    )
    assert episode.parts == {"world": 1.0, "bonus": -0.25, "two.a": -2.0, "two.b": -1.0}
    assert len(score(solved(), many=Does(lambda: {f"n{n}": 0.0 for n in range(64)})).parts) == 65
    assert episode.reward == math.fsum(episode.parts.values())
    assert (episode.success, episode.status) == (True, EpisodeStatus.COMPLETED)


def test_a_part_belongs_to_its_kinds_of_episodes_only():
    update = structs.replace(solved(-0.1), kind=EpisodeKind.UPDATE)
    assert score(update, bonus=Does(lambda: 1.0)) is update
    assert score(update, context=ContextReward(0.0), bonus=Does(lambda: 1.0)).parts == {"context": 0.0}


@each(
    "part",
    [
        raising(ValueError("no")),
        raising(SystemExit(0)),
        raising(asyncio.CancelledError()),
        raising(GeneratorExit()),
        raising(KeyboardInterrupt()),
        raising(BaseException("of no class")),
        raising(Speechless()),
        Does(lambda: {"a\nb": 1.0}),
        Does(lambda: {7: 1.0}),
        Does(lambda: 1e31),
        Does(lambda: {f"n{n}": 0.0 for n in range(65)}),
        raising(TimeoutError("its own")),
        Does(lambda: math.nan),
        Does(lambda: math.inf),
        Does(lambda: None),
        Does(lambda: "1.0"),
        Does(lambda: {"a": "x"}),
        Does(lambda: [1.0]),
        Does(lambda: 1e300, 1e300),
        Does(lambda: 10**400),
        Does(lambda: {"a": 1.7e308, "b": 1.7e308}),
    ],
)
def test_a_part_that_raises_or_is_no_finite_number_makes_the_reward_missing(part):
    episode = score(solved(), bonus=part, other=Does(lambda: 1.0))
    assert (episode.status, episode.reward, episode.success) == (EpisodeStatus.FAILED, None, None)
    assert episode.fault == "RewardFailure"
    assert "bonus" in episode.error
    assert episode.parts == {}


@pytest.mark.parametrize(
    ("limit_s", "error"),
    [
        (None, "RewardFailure: bonus raised ValueError: no"),
        (0.01, "RewardTimeout: bonus gave no score in data.deadlines.reward_s=0.01 s"),
    ],
)
def test_a_part_that_raises_or_hangs_is_broken_off_and_its_traceback_logged(caplog, limit_s, error):
    async def ask():
        await asyncio.sleep(0 if limit_s is None else 60)
        raise ValueError("no")

    FAULT_LOG.addHandler(caplog.handler)
    try:
        episode = score(solved(), limit_s=limit_s, bonus=Does(ask))
    finally:
        FAULT_LOG.removeHandler(caplog.handler)
    assert [record.getMessage() for record in caplog.records] == [episode.error]
    assert episode.error.startswith(error)
    assert "in ask" in caplog.text


@each("error", [EngineRefused("a wrong key"), Stopped(15)])
def test_only_a_refusal_or_a_signal_ends_the_run(error):
    with pytest.raises(type(error)):
        score(solved(), bonus=raising(error))


def test_a_cancelled_lifecycle_stays_cancelled():
    async def run():
        begun = asyncio.create_task(scored(solved(), TASK, rewards_of({"b": Does(lambda: asyncio.sleep(60))})))
        await asyncio.sleep(0.01)
        begun.cancel()
        await begun

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())


def test_a_failed_part_costs_its_lifecycle_and_is_counted_while_the_others_go_on():
    asked = iter(range(1000))
    groups = play(bonus=Does(lambda: math.nan if next(asked) == 7 else 1.0))
    lives = [life for group in groups for life in group.lifecycles]
    assert sum(life.failed for life in lives) == 1
    assert count_faults(groups) == {"RewardFailure": 1}
    (lost,) = [life for life in lives if life.failed]
    after = [e.status for e in lost.episodes]
    assert set(after[after.index(EpisodeStatus.FAILED) + 1 :]) <= {EpisodeStatus.SKIPPED}
    assert all(e.reward is not None for life in lives if life is not lost for e in life.episodes)


def test_the_update_sees_the_whole_reward():
    plain, more = play()[0].lifecycles[0], play(bonus=Does(lambda: 0.125))[0].lifecycles[0]
    assert more.solves[0].reward == plain.solves[0].reward + 0.125
    assert "0.125" in more.updates[0].turns[0].observation or "1.125" in more.updates[0].turns[0].observation


def test_parts_are_logged_by_position_only_where_there_are_some():
    alone = RolloutStats.of(play(), 1.0, 0)
    stats = RolloutStats.of(play(penalty=Does(lambda: -0.5)), 1.0, 0)
    names = {f"reward/{part}/position_{n}" for part in ("world", "penalty") for n in range(3)}
    assert stats.parts.keys() - alone.parts.keys() == names
    assert not [name for name in alone.parts if name.startswith("reward/")]
    total, count = (stats + stats).parts["reward/penalty/position_1"]
    assert (total, count) == (-6.0, 12)


def test_format_by_its_definition():
    for status, given, expected in (
        (EpisodeStatus.MALFORMED, (0.2, 0.05), -0.2),
        (EpisodeStatus.MALFORMED, (), -0.1),
        (EpisodeStatus.TRUNCATED, (0.2, 0.05), -0.05),
        (EpisodeStatus.TRUNCATED, (), 0.0),
        (EpisodeStatus.COMPLETED, (0.2, 0.05), 0.0),
    ):
        assert score(solved(status=status), form=FormatReward(*given)).parts == {"world": 1.0, "form": expected}


def test_a_fact_that_the_environment_showed_pays_once_and_not_where_the_context_held_it():
    seen = structs.replace(turn(1), observation="want=red 1=red 1=red", response="9=gold 9=gold")
    for context, expected in (("", 0.2), ("1=red 2=?", 0.1), ("1=blue", 0.2), ("2=blue 1=red", 0.0)):
        episode = structs.replace(solved(turns=(seen,)), feedback="2=blue", context_before=context)
        assert score(episode, new=NewFacts("[0-9]=[a-z]+", bonus=0.1)).parts["new"] == pytest.approx(expected)


def test_a_part_from_outside_the_package_is_added_by_its_class_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "short_notes"))
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--rewards", type=dict[str, Reward])
    given = parser.parse_args(["--rewards", "{short: {class_path: short_notes.ShortNotes, init_args: {most: 200}}}"])
    parts = parser.instantiate(given).rewards
    assert type(parts["short"]) is sys.modules["short_notes"].ShortNotes
    life = play(**parts)[0].lifecycles[0]
    update = life.updates[0]
    assert update.parts == {"context": 0.0, "short": 0.1 * max(0.0, 1 - len(update.context_after) / 200)}
    assert life.solves[0].parts == {}
