"""A lifecycle in which the agent proposes its tasks: order, what is asked, played, paid, credited and kept, whatever it says."""

import random
from dataclasses import dataclass, replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.contexts import HintContext
from cod_lightning.credit.returns import EpisodeCredit
from cod_lightning.envs.base import Players, Proposals, Reference, beside
from cod_lightning.envs.doors import Doors
from cod_lightning.envs.doors.world import DoorProposals
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.forbidden import ForbiddenLever
from cod_lightning.envs.levers.world import LeverProposals
from cod_lightning.envs.mixture import Mixture
from cod_lightning.lifecycles import outline
from cod_lightning.methods.overlong import OverlongReward
from cod_lightning.methods.propose import ProposeAndSolve, learnability
from cod_lightning.methods.transcript import TranscriptContext
from cod_lightning.rollout.segments import segments_of
from cod_lightning.rollout.stats import RolloutStats
from cod_lightning.types import EpisodeKind, EpisodeStatus, Message, Role, Split
from tests.cases import each
from tests.credit_tables import credit_table
from tests.hostile_texts import ENCODABLE
from tests.records import solve
from tests.word_play import scripted

WORLDS = {
    "doors": lambda protocol: Doors(num_doors=8, glimpses=2, protocol=protocol),
    "levers": lambda protocol: Levers(protocol=protocol),
    "forbidden lever": lambda protocol: ForbiddenLever(protocol=protocol),
    "mixture": lambda protocol: Mixture({"doors": Doors(protocol=protocol), "levers": Levers(protocol=protocol)}),
}
both = each("protocol", ["natural", "compact"])
worlds = each("make", WORLDS.values())


@dataclass(frozen=True)
class Says:
    """A scripted policy whose proposals are these words, where they are named."""

    policy: object
    words: str | None = None

    def propose(self, messages, rng):
        said = self.policy.propose(messages, rng)
        return self.words if said and self.words is not None else said

    def __getattr__(self, name):
        return getattr(self.policy, name)


def lived(world, protocol, words=None, mechanism=None, rewards=None, num_siblings=1, solves=3, num_tasks=6, **options):
    mechanism = mechanism or HintContext(protocol)
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=num_tasks)
    policy = Says(beside(world, Players).reference(Reference.SCRIPTED, pack), words)
    setting = {"program": ProposeAndSolve(solves=solves, **options), "rewards": rewards or {}}
    return scripted(world, mechanism, policy, num_siblings=num_siblings, num_tasks=num_tasks, **setting)[0]


def asked(solve):
    """What a task wants, of doors and levers alike, in both wordings."""
    return solve.turns[0].observation.splitlines()[-1]


@given(rounds=st.integers(1, 9), solves=st.integers(2, 6), proposes=st.booleans(), updates=st.booleans())
def test_a_proposal_is_solved_as_often_as_said_and_an_update_follows_unless_it_is_the_last(
    rounds, solves, proposes, updates
):
    program, expected = ProposeAndSolve(solves=solves, proposes=proposes), []
    for number in range(rounds):
        first = number * solves
        expected += [(EpisodeKind.WRITE, first, first)] if proposes else []
        expected += [(EpisodeKind.SOLVE, n, first) for n in range(first, first + solves)]
        expected += [(EpisodeKind.UPDATE, first + solves - 1, first)] if updates and number < rounds - 1 else []
    assert list(outline(program, rounds * solves, updates)) == expected


def test_in_expectation_few_solve_episodes_see_less_by_a_factor_that_is_the_same_for_all_tasks():
    for num, q in product((2, 3, 4), (0.1, 0.5, 0.8)):
        expected = 0.0
        for outcomes in product([False, True], repeat=num):
            chance = 1.0
            for one in outcomes:
                chance *= q if one else 1 - q
            played = [solve(n, one) for n, one in enumerate(outcomes)]
            expected += chance * learnability(played)
        assert expected == pytest.approx((1 - 1 / num) * 4 * q * (1 - q))


@both
@worlds
def test_a_proposal_comes_before_the_solve_episodes_that_play_its_task_from_one_context(make, protocol):
    world = make(protocol)
    life = lived(world, protocol).lifecycles[0]
    assert [f"{one.kind} {one.position}" for one in life.episodes] == [
        *("write 0", "solve 0", "solve 1", "solve 2", "update 2", "write 3", "solve 3", "solve 4", "solve 5")
    ]
    assert not any(one.error for one in life.episodes)
    for first in (0, 3):
        proposal = next(one for one in life.episodes if (one.kind, one.position) == (EpisodeKind.WRITE, first))
        solves = [life.solves[n] for n in range(first, first + 3)]
        assert (proposal.status, proposal.success) == (EpisodeStatus.COMPLETED, True)
        assert proposal.context_before == proposal.context_after
        assert {one.context_before for one in solves} == {proposal.context_before}
        (wanted,) = {asked(one) for one in solves}
        said = proposal.turns[0].response.replace("</answer>", "").split()[-1].removeprefix("want=")
        assert said.strip(".") in wanted
    assert life.episodes[5].context_before == life.updates[0].context_after != ""
    assert {one.num_action_tokens > 0 for one in life.episodes} == {True}
    group = lived(world, protocol, num_siblings=2)
    assert len(segments_of([group])) == sum(len(life.episodes) for life in group.lifecycles)


NO_PROPOSALS = ["", " ", "open=7 open=6", "want=red want=red", "<answer>Door 1</answer><answer>Door 2</answer>"]
NO_PROPOSALS += [f"<answer>{said}</answer>" for said in ("Door 99", "Colour", "Key red", "Door ٣")]
NO_PROPOSALS += [ENCODABLE, "<answer>" * 9999, "9" * 9999, "open=" + "9" * 999]
NO_PROPOSALS += ["open=", "open=0", "open=99", "open=007", "want=pink", "want=", "red"]


@both
@pytest.mark.parametrize(
    "make",
    [
        WORLDS["mixture"],
        pytest.param(WORLDS["doors"], marks=pytest.mark.slow),
        pytest.param(WORLDS["levers"], marks=pytest.mark.slow),
    ],
)
@each("words", NO_PROPOSALS)
def test_whatever_is_no_proposal_is_counted_earns_nothing_and_leaves_the_pack_s_own_task(make, protocol, words):
    group = lived(make(protocol), protocol, words)
    own = lived(make(protocol), protocol, proposes=False)
    life = group.lifecycles[0]
    proposals = [one for one in life.episodes if one.kind is EpisodeKind.WRITE]
    assert [(one.status, one.success, one.reward) for one in proposals] == [(EpisodeStatus.MALFORMED, False, 0.0)] * 2
    assert [one.parts for one in proposals] == [{"learnability": 0.0}] * 2
    assert [asked(one) for one in life.solves] == [asked(one) for one in own.lifecycles[0].solves]
    parts = RolloutStats.of([group], 1.0, 0).parts
    assert parts["write_valid/position_3"] == parts["write_reward/learnability/position_3"] == (0.0, 1)


def test_without_proposals_the_same_task_of_the_pack_is_played_as_often():
    world = Doors(num_doors=8, protocol="compact")
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=6)
    life = lived(world, "compact", proposes=False).lifecycles[0]
    assert [asked(one) for one in life.solves] == [f"open={pack.tasks[n // 3 * 3].spec.door}" for n in range(6)]
    assert not any(one.kind is EpisodeKind.WRITE for one in life.episodes)


def test_each_solve_episode_begins_with_the_context_of_the_first_also_where_feedback_writes_it():
    life = lived(Levers(protocol="compact"), "compact", mechanism=TranscriptContext(protocol="compact")).lifecycles[0]
    assert not life.updates
    assert [one.context_before == "" for one in life.solves] == [True] * 3 + [False] * 3
    assert len({one.context_before for one in life.solves[3:]}) == 1
    assert life.episodes[4].context_before == life.solves[2].context_after == life.solves[3].context_before


def test_a_task_that_was_proposed_before_counts_as_a_repeat():
    solves = lived(Doors(num_doors=8, protocol="compact"), "compact", "open=5").lifecycles[0].solves
    assert [one.repeat for one in solves] == [False] * 3 + [True] * 3


def test_a_proposal_is_paid_by_the_share_of_its_tasks_that_were_solved_and_by_parts_for_its_kind():
    rewards = {"long": OverlongReward(0, 1, penalty=0.25)}
    group = lived(Doors(num_doors=8, protocol="compact"), "compact", num_siblings=16, solves=2, rewards=rewards)
    shares = set()
    for life in group.lifecycles:
        for index, one in enumerate(life.episodes):
            if one.kind is EpisodeKind.WRITE:
                p = sum(solve.success for solve in life.episodes[index + 1 : index + 3]) / 2
                assert one.parts == {"long": -0.25, "learnability": pytest.approx(4 * p * (1 - p))}
                assert one.reward == pytest.approx(sum(one.parts.values()))
                shares.add(p)
    assert shares == {0.0, 0.5, 1.0}


def test_a_proposal_is_credited_with_its_own_reward_and_each_other_episode_with_those_of_the_tasks_from_it_on():
    group = lived(Doors(num_doors=8, protocol="compact"), "compact", num_siblings=8, solves=2)
    table = credit_table([group])
    found = EpisodeCredit(mean=False)(table)
    for (_, k, e), entry in table.numbers.items():
        own, *later = group.lifecycles[k].episodes[e:]
        paid = own.kind is EpisodeKind.WRITE
        assert own.weights == (((e, 1.0),) if paid else None)
        of = [own] if paid else [own, *(one for one in later if one.kind is EpisodeKind.SOLVE)]
        assert float(found.values[entry]) == pytest.approx(sum(one.reward for one in of), abs=1e-5)


class BreaksProposals(DoorProposals):
    def proposed(self, response, task):
        if self.env.where == "proposed":
            raise SystemExit("gone")
        return "open=5" if self.env.where == "given" else super().proposed(response, task)

    @property
    def offer(self):
        return 7 if self.env.where == "offer" else super().offer


class Breaks(Doors):
    """Raises in one method, or gives what is no task."""

    companions = (BreaksProposals, *Doors.companions)

    def __init__(self, where):
        super().__init__(num_doors=8, protocol="compact")
        self.where, self.steps = where, 0

    def step(self, action):
        self.steps += 1
        if self.where == "step" and self.steps > 4:
            raise RuntimeError("broken")
        return super().step(action)


@each(
    ("where", "says"),
    [("proposed", "gone"), ("given", "gave a str, not a Task or None"), ("offer", "showed a int, not a string")],
)
def test_an_environment_that_breaks_at_a_proposal_costs_the_lifecycle_alone(where, says):
    episodes = lived(Breaks(where), "compact").lifecycles[0].episodes
    assert (episodes[0].status, episodes[0].fault) == (EpisodeStatus.FAILED, "EnvironmentFailure")
    assert says in episodes[0].error
    assert {one.status for one in episodes[1:]} == {EpisodeStatus.SKIPPED}


def test_a_proposal_whose_task_was_not_played_to_the_end_has_no_reward_and_the_fault_is_counted_once():
    group = lived(Breaks("step"), "compact", solves=6, num_tasks=6)
    proposal, *solves = group.lifecycles[0].episodes
    lost = next(one for one in solves if one.reward is None)
    assert lost.status is EpisodeStatus.FAILED
    assert (proposal.status, proposal.reward, proposal.error) == (EpisodeStatus.FAILED, None, lost.error)
    assert RolloutStats.of([group], 1.0, 0).counts["faults/EnvironmentFailure"] == 1


@both
@each("name", ["doors", "levers"])
def test_scripted_policies_and_demonstrators_propose_every_task_about_as_often(name, protocol):
    world = WORLDS[name](protocol)
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=3)
    for policy in (
        *(beside(world, Players).reference(kind, pack) for kind in Reference),
        beside(world, Players).demonstrator(pack),
    ):
        said = [_proposal(world, policy, pack, seed) for seed in range(200)]
        tasks = [beside(world, Proposals).proposed(text, pack.tasks[0]) for text in said]
        assert None not in tasks
        counts = [tasks.count(task) for task in {repr(task): task for task in tasks}.values()]
        assert len(counts) == (8 if name == "doors" else 4)
        assert min(counts) > 0.5 * 200 / len(counts)


def _proposal(world, policy, pack, seed):
    world.reset(options={"task": pack.tasks[0]})
    dialogue = [Message(Role.SYSTEM, world.rules), Message(Role.USER, beside(world, Proposals).offer)]
    return policy.propose(dialogue, random.Random(seed))


class Unequal:
    """Compared with anything, it raises, as an array does."""

    def __eq__(self, other):
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None


class OddProposals(LeverProposals):
    def proposed(self, response, task):
        return replace(task, spec=Unequal())


class Odd(Levers):
    """Its proposed tasks cannot be compared; it plays the pack's own."""

    companions = (OddProposals, *Levers.companions)

    def reset(self, *, seed=None, options=None):
        pack = self.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
        return super().reset(options={"task": pack.tasks[0]})


def test_tasks_that_cannot_be_compared_cost_their_lifecycle_and_not_the_run():
    life = lived(Odd(protocol="compact"), "compact").lifecycles[0]
    assert [one.error for one in life.episodes if one.error] == [
        "EnvironmentFailure: Odd raised ValueError: the truth value of an array is ambiguous"
    ]
