"""Attempts from a snapshot: same moment, other noise, and a lifecycle that does not notice."""

from dataclasses import replace

import torch

from cod_lightning.contexts.base import TextState
from cod_lightning.lifecycles import ConnectTheDots, Program
from cod_lightning.lifecycles.best_of_n import BestOfN
from cod_lightning.methods.attempts import Anchored, Counterfactual
from cod_lightning.methods.propose import ProposeAndSolve
from cod_lightning.objective.batch import collate
from cod_lightning.rewards import Reward
from cod_lightning.rewards.base import rewards_of
from cod_lightning.rollout.segments import count_drift, segments_of
from cod_lightning.rollout.stats import RolloutStats
from cod_lightning.types import EpisodeStatus
from tests.cases import each
from tests.credit_tables import credit_table
from tests.stubs import FunctionEngine, PlainContext, counted
from tests.word_play import Ledger, live, speak

ANCHORED = Anchored(attempts=3, fraction=1.0)
EVERYWHERE = Counterfactual(attempts=2, fraction=1.0, program=ANCHORED)


def lives(groups):
    return [life for group in groups for life in group.lifecycles]


def positions(life, trained):
    """Of the attempts of one of both kinds."""
    return [one.position for one in life.attempts if one.trained == trained]


def test_the_lifecycle_itself_is_the_same_with_attempts_and_without():
    plain, branched = live(), live(EVERYWHERE)
    assert [life.episodes for life in lives(plain)] == [life.own for life in lives(branched)]
    assert all(not life.attempts for life in lives(plain))


class WithWhatWasSaid(PlainContext):
    """A task adds what the policy said first."""

    def feedback(self, state, episode):
        return TextState(f"{state.text} {episode.turns[0].response}".strip())


@each("inside", [ANCHORED, BestOfN(n=3)])
def test_without_its_context_means_the_one_before_the_rewrite(inside):
    program = replace(EVERYWHERE, attempts=1, program=inside)
    rewritten_elsewhere = 0
    for life in lives(live(program, mechanism=WithWhatWasSaid())):
        others = [one for one in life.attempts if not one.trained]
        before = [life.updates[e.position - 1].context_before for e in others]
        assert [e.context_before for e in others] == before
        assert all(life.solves[e.position].context_before != "" for e in others)
        rewritten_elsewhere += sum(
            update.context_before != solve.context_after
            for update, solve in zip(life.updates, life.solves, strict=False)
        )
    assert (rewritten_elsewhere > 0) == (inside is not ANCHORED), "the best attempt's is rewritten"


def test_the_fraction_says_how_many_and_the_identity_decides_where():
    half = Anchored(attempts=2, fraction=0.5)
    counts = [len(life.attempts) for life in lives(live(half, num_tasks=8, siblings=4))]
    assert 10 < sum(counts) < 46  # of 56
    assert counts == [len(life.attempts) for life in lives(live(half, num_tasks=8, siblings=4))]
    assert len(set(counts[:4])) > 1, "siblings are drawn apart"
    both = lives(live(Counterfactual(attempts=1, fraction=0.5, program=half), num_tasks=8))
    measured, anchored = ([positions(life, trained) for life in both] for trained in (False, True))
    assert measured != anchored, "kinds are drawn apart"


def test_a_task_that_the_program_plays_again_has_no_attempts_which_would_begin_with_a_later_context():
    again = Anchored(attempts=2, fraction=1.0, program=ProposeAndSolve(solves=2, proposes=False))
    for life in lives(live(again)):
        assert [one.position for one in life.attempts] == [2]


class Back(Program):
    """Each later task begins with what was written after the first one."""

    async def __call__(self, agent, pack):
        noted = await agent.rewrite(await agent.solve(pack.tasks[0]))
        for task in pack.tasks[1:]:
            await agent.rewrite(await agent.solve(task, context=noted.state_after))


def test_a_task_that_begins_with_a_state_of_the_program_s_has_no_attempts_which_would_begin_with_the_agent_s():
    assert not any(life.attempts for life in lives(live(Anchored(attempts=2, fraction=1.0, program=Back()))))


def test_an_attempt_without_the_context_is_none_that_a_program_goes_on_from():
    program = Counterfactual(attempts=3, fraction=1.0, program=BestOfN(n=2))
    for life in lives(live(program)):
        for update in life.updates:
            assert update.context_before == life.solves[update.position].context_before


def test_every_attempt_has_noise_of_its_own():
    engine = FunctionEngine(speak)
    live(EVERYWHERE, engine=engine)
    extra = [request.dialogue for request in engine.requests if "+" in request.dialogue]
    assert len({dialogue.rpartition("+")[0] for dialogue in extra}) == 4 * 3
    for number in range(4):
        assert len({of for of in extra if of.endswith(f"+{number}")}) == 4 * 3
    assert len({request.noise_seed for request in engine.requests}) == len(engine.requests)


def test_the_world_of_every_attempt_is_a_copy_of_its_own_that_is_closed_after_it():
    world, opened, closed = counted(Ledger)
    live(EVERYWHERE, world=world())
    assert len(opened) == 4 * (1 + 3 * 4)
    assert sorted(map(id, closed)) == sorted(map(id, opened))


def test_nothing_is_attempted_once_an_episode_has_failed():
    def fail(request):
        if "#1.1" in request.dialogue and "+" not in request.dialogue:
            raise RuntimeError("no slot")
        return speak(request)

    first, second = lives(live(EVERYWHERE, engine=FunctionEngine(fail)))[:2]
    assert (first.failed, second.failed) == (False, True)
    assert (len(first.attempts), len(second.attempts)) == (3 * 4, 0)


def test_an_attempt_that_fails_is_data_and_its_lifecycle_goes_on():
    def fail(request):
        if "+" in request.dialogue:
            raise RuntimeError("no slot")
        return speak(request)

    groups = live(EVERYWHERE, engine=FunctionEngine(fail))
    for life in lives(groups):
        assert not life.failed
        assert {one.status for one in life.attempts} == {EpisodeStatus.FAILED}
    table = credit_table(groups)
    assert torch.equal(table.valid, table.own)
    assert RolloutStats.of(groups, 1.0, 0).counts["rollout/num_failed"] == int((~table.own).sum()) == 48


def test_rows_of_attempts_with_the_context_are_trained_on_the_others_only_measure_and_their_cost_is_counted():
    groups = live(EVERYWHERE)
    rows = segments_of(groups)
    table = credit_table(groups)
    index = {group.pack.id: g for g, group in enumerate(groups)}
    batch = collate(rows, table, index, pad_id=0)
    extra, numbers = batch.is_attempt, batch.episode[batch.is_attempt]
    assert int(extra.sum()) == int(table.trained[~table.own].sum()) == 2 * 2 * 3 * 2
    assert table.trained[numbers].all()
    assert (table.place[numbers] == batch.place[extra]).all()
    assert torch.equal(batch.action_mask[extra].sum(dim=1), table.action_counts[numbers])
    assert count_drift(groups) == 0
    plain, branched = (RolloutStats.of(of, 1.0, 0).counts for of in (live(), groups))
    assert plain["rollout/num_attempts"] == plain["rollout/attempt_tokens"] == 0
    assert branched["rollout/num_attempts"] == 4 * 3 * 4
    turns = [turn for one in groups for life in one.lifecycles for of in life.attempts for turn in of.turns]
    assert branched["rollout/attempt_tokens"] == sum(len(turn.new_ids + turn.action_ids) for turn in turns) > 0


def test_a_context_is_measured_at_the_first_task_after_its_update_alone():
    program = replace(EVERYWHERE, program=replace(ANCHORED, program=ConnectTheDots(every=2)))
    for life in lives(live(program, num_tasks=6)):
        assert {*positions(life, False)} == {2, 4}
        assert {*positions(life, True)} == {1, 2, 3, 4, 5}


class Bonus(Reward):
    async def __call__(self, episode, task):
        return 10.0


def test_an_attempt_has_the_parts_of_its_reward_and_they_are_not_logged_among_those_of_lifecycles():
    parts = rewards_of({"bonus": Bonus()})
    plain, branched = live(rewards=parts), live(EVERYWHERE, rewards=parts)
    attempts = [one for life in lives(branched) for one in life.attempts]
    assert attempts
    assert all(episode.parts["bonus"] == 10.0 and episode.reward >= 10.0 for episode in attempts)
    assert RolloutStats.of(branched, 1.0, 0).parts == RolloutStats.of(plain, 1.0, 0).parts
