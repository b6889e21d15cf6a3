"""Programs that look at what came of episodes, and what they say of credit: with whom it compares, and which rewards it adds up."""

from dataclasses import dataclass

import pytest
import torch

from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.contexts.base import TextState
from cod_lightning.credit.baselines import GroupMean
from cod_lightning.credit.returns import EpisodeCredit, TaskCredit, TrajectoryCredit
from cod_lightning.lifecycles import Ask, ConnectTheDots, Program
from cod_lightning.lifecycles.controls import Controlled
from cod_lightning.methods.attempts import Anchored
from cod_lightning.rollout import transcript
from cod_lightning.rollout.stats import RolloutStats, count_faults
from cod_lightning.types import EpisodeKind
from tests.cases import each
from tests.credit_tables import credit_table, credited_entries
from tests.small_fit import small_fit
from tests.stubs import WordWorld
from tests.word_play import live


@dataclass(frozen=True)
class UntilSolved(Program):
    """Each task until it is solved, three times at most, each time with what was written after the time before."""

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            for _ in range(3):
                solved = await agent.solve(task)
                await agent.rewrite(solved)
                if solved.success:
                    break

    @property
    def held_out(self):
        return ConnectTheDots()


@pytest.mark.slow
def test_a_program_may_look_at_what_came_of_episodes_and_its_ragged_lifecycles_train(tmp_path):
    updates = small_fit(tmp_path, WeightSync(), program=UntilSolved(), group_size=6).updates
    lives = [life for group in updates.groups for life in group.lifecycles]
    assert len({len(life.episodes) for life in lives}) > 1
    for life in lives:
        kinds = [(episode.kind, episode.position) for episode in life.episodes]
        assert kinds == [(kind, n) for n in range(len(life.solves)) for kind in (EpisodeKind.SOLVE, EpisodeKind.UPDATE)]
        assert sum(bool(one.success) for one in life.solves) <= 2
    assert all(logged["train/gradient_norm"] > 0 for logged in updates.values)
    known = torch.cat([batch.advantages for batch in updates.batches])
    assert known.isfinite().any()
    assert known.isnan().any(), "an episode that no sibling has at its place"


@dataclass(frozen=True)
class NamedByTask(UntilSolved):
    """As `UntilSolved`; tries at a task are compared with each other, in whichever lifecycle and however many came before."""

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            for _ in range(3):
                solved = await agent.solve(task, compared_with=task.id)
                if solved.success:
                    break


def test_episodes_that_a_program_names_are_compared_by_name_also_within_a_lifecycle(tmp_path):
    updates = small_fit(tmp_path, WeightSync(), program=NamedByTask(), group_size=6).updates
    assert len({len(life.episodes) for group in updates.groups for life in group.lifecycles}) > 1
    for group in updates.groups:
        (again,) = transcript.load(transcript.dump(group))
        table = credit_table([again])
        found = credited_entries(table, TaskCredit(), GroupMean())
        named = [one for life in group.lifecycles for one in life.episodes]
        for entry, episode in enumerate(named):
            alike = [one.reward for one in named if one.compared_with == episode.compared_with]
            expected = episode.reward - sum(alike) / len(alike) if len(alike) > 1 else 0.0
            assert float(found.values[entry]) == pytest.approx(expected, abs=1e-6)


@dataclass(frozen=True)
class NamesAll(Program):
    """Compares all texts, all tries, all rewrites of a lifecycle and its siblings with each other."""

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            written = await agent.ask(task, Ask(" w5"), compared_with="text")
            agent.fork(task, compared_with="try")
            solved = await agent.solve(task, compared_with="try")
            agent.pay(written.episode, [solved], worth=solved.reward)
            await agent.rewrite(solved, compared_with="rewrite")


def test_episodes_of_every_kind_and_attempts_are_compared_by_the_names_that_a_program_gives_them():
    seen = set()
    for group in live(program=NamesAll()):
        (again,) = transcript.load(transcript.dump(group))
        table = credit_table([again])
        found = credited_entries(table, TaskCredit(), GroupMean())
        every = {name: [] for name in ("text", "try", "rewrite")}
        for life in group.lifecycles:
            for one in life.episodes:
                every[one.compared_with].append(one.reward)
        assert [len(rewards) for rewards in every.values()] == [8, 16, 8]
        for (_, k, e), entry in table.numbers.items():
            one = group.lifecycles[k].episodes[e]
            rewards = every[one.compared_with]
            if one.kind is EpisodeKind.SOLVE:
                others = (sum(rewards) - one.reward) / (len(rewards) - 1)
                expected = (one.reward - others) / 2  # of the two tries of that moment
            else:
                expected = one.reward - sum(rewards) / len(rewards)
            assert float(found.values[entry]) == pytest.approx(expected, abs=1e-6)
            seen.add((one.kind, round(expected, 6) != 0))
    assert {(EpisodeKind.WRITE, True), (EpisodeKind.SOLVE, True)} <= seen


@each("program", [Controlled(shown=TextState(), program=NamesAll()), Anchored(fraction=1.0, program=NamesAll())])
def test_a_program_around_another_leaves_its_names(program):
    for life in (life for group in live(program=program) for life in group.lifecycles):
        names = {EpisodeKind.WRITE: "text", EpisodeKind.SOLVE: "try", EpisodeKind.UPDATE: "rewrite"}
        assert {one.kind: one.compared_with for one in life.own} == names
        assert len({one.compared_with for one in life.own}) == 3


@dataclass(frozen=True)
class PaysTexts(Program):
    """A text is paid for its task alone, and for its length."""

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            written = (await agent.ask(task, Ask(" w5"))).episode
            solved = await agent.solve(task)
            agent.pay(written, [solved], [0.5], length=0.25 * sum(len(turn.action_ids) for turn in written.turns))


@each("rule", [EpisodeCredit(), EpisodeCredit(mean=False, discount=0.5), TrajectoryCredit(), TaskCredit()])
def test_a_program_may_credit_an_episode_with_some_later_rewards_alone(rule):
    groups = [one for group in live(program=PaysTexts()) for one in transcript.load(transcript.dump(group))]
    table, found = credit_table(groups), rule(credit_table(groups))
    rewards = set()
    for (g, k, e), entry in table.numbers.items():
        if e % 2 == 0:
            text, solved = groups[g].lifecycles[k].episodes[e : e + 2]
            assert text.parts == {"length": text.reward}
            assert float(found.values[entry]) == pytest.approx(text.reward + 0.5 * solved.reward, abs=1e-6)
            rewards.add(solved.reward)
    assert len(rewards) > 1


@dataclass(frozen=True)
class PaysAgain(Program):
    """Each task counts in its own return once more, and twice in that of the text before it."""

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            written = (await agent.ask(task, Ask(" w5"))).episode
            solved = await agent.solve(task)
            agent.pay(written, [solved, solved], [0.5, 0.25])
            agent.pay(solved, [solved], [0.5])


def test_weights_of_one_reward_add_up_and_that_of_an_episode_s_own_to_its_1():
    groups = live(program=PaysAgain())
    for life in (life for group in groups for life in group.lifecycles):
        for e in range(0, len(life.episodes), 2):
            assert [one.weights for one in life.episodes[e : e + 2]] == [((e, 1.0), (e + 1, 0.75)), ((e + 1, 1.5),)]


@dataclass(frozen=True)
class PaysAll(Program):
    """Each task and each rewrite is paid once more."""

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            agent.pay(solved := await agent.solve(task), [], more=1.0)
            agent.pay(await agent.rewrite(solved), [], more=1.0)


def test_parts_are_logged_in_the_mean_over_all_episodes_also_where_an_episode_s_own_is_0():
    groups = live(program=PaysAll())
    logged, zeros = RolloutStats.of(groups, 1.0, 0).figures(in_flight=False), 0
    for kind, name in ((EpisodeKind.SOLVE, "reward/world"), (EpisodeKind.UPDATE, "update_reward/context")):
        for n in range(2):
            every = [one for group in groups for life in group.lifecycles for one in life.episodes]
            own = [one.reward - 1.0 for one in every if one.kind is kind and one.position == n]
            assert logged[f"train/{name}/position_{n}"] == pytest.approx(sum(own) / len(own))
            zeros += own.count(0.0)
    assert zeros


@dataclass(frozen=True)
class PaysForTheLast(Program):
    """A text is paid for the last task."""

    async def __call__(self, agent, pack):
        written = (await agent.ask(pack.tasks[0], Ask(" w5"))).episode
        solved = [await agent.solve(task) for task in pack.tasks]
        agent.pay(written, solved[-1:], [1.0])


def test_what_is_paid_for_a_skipped_task_is_missing_by_the_fault_before_it():
    groups = live(program=PaysForTheLast(), world=WordWorld(raise_in=".1"))
    for life in (life for group in groups for life in group.lifecycles):
        assert [one.status for one in life.episodes] == ["failed", "completed", "failed", "skipped", "skipped"]
        assert life.episodes[0].error == life.episodes[2].error
    assert set(count_faults(groups)) == {"EnvironmentFailure"}
