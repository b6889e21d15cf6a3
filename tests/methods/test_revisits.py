"""A curriculum whose packs come back, by what came of them."""

import json
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Scripted, Stored, beside
from cod_lightning.envs.grid import GridNavigation
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.errors import ConfigError
from cod_lightning.methods.revisits import Revisits, worth
from cod_lightning.training.packs import PackChoice, PackOutcomes, TrainingPacks
from cod_lightning.types import Split
from tests.cases import each
from tests.credit_tables import CreditTable, plain_credit

SIZE, SIBLINGS = 3, 4
MIXED = Mixture({"one": Levers(max_turns=1, protocol="compact"), "four": Levers(max_turns=4, protocol="compact")})


def outcomes(choices, rewards, valid=None, contexts=()):
    """Of packs with these rewards, [P K N], of their solve episodes; updates between them have none worth mentioning."""
    solves = torch.tensor(rewards)
    known = torch.ones_like(solves).bool() if valid is None else torch.tensor(valid)
    table = torch.full((*solves.shape[:2], 2 * solves.shape[2] - 1), -0.1)
    all_valid = torch.ones_like(table).bool()
    table[..., 0::2], all_valid[..., 0::2] = solves, known
    kinds = torch.arange(table.shape[2]) % 2
    credit = CreditTable(rewards=table, valid=all_valid, action_counts=all_valid.long(), kinds=kinds)
    return PackOutcomes(choices=choices, credit=plain_credit(table, table=credit.flat()), contexts=contexts)


def played(packs, rollouts, count=8, seed=0):
    """Choices of each rollout, whose rewards are 0 or 1 by index and position, half of all packs being solved by everyone."""
    found = []
    first = 0
    for rollout in range(rollouts):
        drawn = packs.draw(first, count)
        choices = [choice for choice, _ in drawn]
        rng = torch.Generator().manual_seed(1000 * seed + rollout)
        rewards = [
            (torch.rand(SIBLINGS, SIZE, generator=rng) < (1.0 if choice.index % 2 else 0.5)).float().tolist()
            for choice in choices
        ]
        contexts = [[[f"{c.index}.{c.visit}.{k}.{n}" for n in range(SIZE)] for k in range(SIBLINGS)] for c in choices]
        packs.observe(outcomes(choices, rewards, contexts=contexts if packs.source.needs_contexts else ()))
        found.append(drawn)
        first += count
    return found


def source(env=MIXED, **options):
    return TrainingPacks(Revisits(**options), env, SIZE, 7)


@given(st.integers(0, 10_000), st.sampled_from(["variance", "regret", "failure"]))
def test_the_worth_of_a_pack_is_that_of_the_loop_over_positions_with_two_siblings(seed, by):
    rng = torch.Generator().manual_seed(seed)
    rewards, valid = torch.rand(5, 4, 3, generator=rng), torch.rand(5, 4, 3, generator=rng) < 0.6
    rewards[0], rewards[1] = 1.0, 0.01
    found = worth(torch.where(valid, rewards, torch.nan if by == "regret" else 9.0), valid, by).tolist()
    for p in range(5):
        of_positions = []
        for n in range(3):
            known = [float(rewards[p, k, n].double()) for k in range(4) if valid[p, k, n]]
            if len(known) >= 2:
                mean = sum(known) / len(known)
                variance = sum((one - mean) ** 2 for one in known) / len(known)
                of_positions.append({"variance": variance, "regret": max(known) - min(known), "failure": 1 - mean}[by])
        expected = sum(of_positions) / len(of_positions) if of_positions else 0.0
        if by == "failure" and not (of_positions and 0.05 <= 1 - expected <= 0.75):
            expected = 0.0
        assert found[p] == pytest.approx(expected, abs=1e-12)


@each("back", ["same", "near", "continued"])
def test_half_of_a_rollout_comes_back_new_packs_are_the_next_ones_and_nothing_is_twice_in_one(back):
    packs = source(by="variance", back=back)
    for number, rollout in enumerate(played(packs, 4)):
        fresh = [choice.index for choice, _ in rollout if not choice.visit]
        assert fresh == list(range(8 * number + (4 if number else 0), 8 * number + 8))
        again = [choice for choice, _ in rollout if choice.visit]
        assert len(again) == (4 if number else 0)
        assert all(choice.index < 8 * number and choice.index % 2 == 0 for choice in again), "none that all solved"
        assert len({pack.id for _, pack in rollout}) == 8
        assert all(pack.split is Split.TRAIN for _, pack in rollout)
    assert packs.metrics()["source/revisits"] == 12


def test_a_pack_comes_back_as_it_was_under_another_id():
    packs = source(back="same")
    for rollout in played(packs, 3):
        for choice, pack in rollout:
            whole = MIXED.sample_pack(split=Split.TRAIN, index=choice.index, num_tasks=SIZE, seed=7)
            assert (pack.tasks, pack.world_seed, pack.context) == (whole.tasks, whole.world_seed, None)
            assert pack.id == (f"{whole.id}~{choice.visit}" if choice.visit else whole.id)


def goals(pack):
    return [(task.spec.world, task.spec.spec.goal, *task.spec.spec.colours) for task in pack.tasks]


def test_a_near_pack_is_nearer_than_most_and_is_of_the_training_split_by_construction():
    packs = source(back="near", candidates=16)
    shared = Counter()
    for choice, pack in (one for rollout in played(packs, 6) for one in rollout):
        if choice.visit:
            whole = MIXED.sample_pack(split=Split.TRAIN, index=choice.index, num_tasks=SIZE, seed=7)
            other = MIXED.sample_pack(split=Split.TRAIN, index=choice.index + 10_000, num_tasks=SIZE, seed=7)
            for name, one in (("near", pack), ("other", other)):
                pairs = [
                    a == b for t, u in zip(goals(one), goals(whole), strict=True) for a, b in zip(t, u, strict=True)
                ]
                shared[name] += sum(pairs) / len(pairs)
    assert shared["near"] > 1.3 * shared["other"]


def test_a_pack_continues_at_a_task_with_a_context_of_that_place_and_again_from_there():
    packs = source(back="continued", by="regret")
    rollouts = played(packs, 8)
    began: dict[tuple[int, int], PackChoice] = {}
    deeper = 0
    for choice, pack in (one for rollout in rollouts for one in rollout):
        began[choice.index, choice.visit] = choice
        whole = MIXED.sample_pack(split=Split.TRAIN, index=choice.index, num_tasks=SIZE, seed=7)
        order = [*range(choice.begin, SIZE), *range(choice.begin)]
        assert [task.id for task in pack.tasks] == [str(n) for n in order]
        assert all(task.repeat for task in pack.tasks[SIZE - choice.begin :])
        if choice.visit:
            index, visit, _, position = (int(part) for part in str(pack.context).split("."))
            assert index == choice.index
            before = began[index, visit]
            assert choice.begin == (before.begin + position) % SIZE
            assert position > 0
            deeper += before.visit > 0
        else:
            assert pack.context is None
            assert pack == whole
    assert deeper, "a history that goes on from one that went on"


def test_what_was_written_is_a_context_that_its_mechanism_loads():
    mechanism = HintContext("compact")
    kept = beside(mechanism, Stored).dump(beside(mechanism, Scripted).adopt("1=red"))
    packs = source(back="continued")
    choices = [choice for choice, _ in packs.draw(0, 2)]
    some = [[[0.0, 1.0, 0.0]] * 2 + [[1.0, 0.0, 0.0]] * 2] * 2
    packs.observe(outcomes(choices, some, contexts=[[[None, kept, None]] * 4] * 2))
    ((choice, pack), _) = packs.draw(2, 2)
    assert (choice.begin, beside(mechanism, Stored).load(str(pack.context))) == (
        1,
        beside(mechanism, Scripted).adopt("1=red"),
    )


def test_a_pack_continues_where_a_sibling_solved_each_task_once_since_others_places_are_no_tasks():
    for once, expected in (["a", "b", "c"], {(1, "b"), (2, "c")}), ([], {(0, None)}):
        found = set()
        for seed in range(20):
            packs = source(back="continued")
            packs.source.seed = seed
            choices = [choice for choice, _ in packs.draw(0, 2)]
            contexts = [[["x"] * (SIZE + 2), once or ["x"] * (SIZE - 1)]] * 2
            packs.observe(outcomes(choices, [[[0.0] * 3, [1.0] * 3]] * 2, contexts=contexts))
            ((choice, pack), _) = packs.draw(2, 2)
            found.add((choice.begin, pack.context))
        assert found == expected


def test_a_pack_in_which_nothing_was_written_comes_back_from_its_beginning():
    packs = source(back="continued")
    choices = [choice for choice, _ in packs.draw(0, 2)]
    packs.observe(outcomes(choices, [[[0.0] * 3, [1.0] * 3]] * 2, contexts=[[["x", None, None]] * 2] * 2))
    ((choice, pack), _) = packs.draw(2, 2)
    assert (choice.begin, pack.context, choice.visit) == (0, None, 3)


def test_packs_are_drawn_in_proportion_to_their_worth():
    packs = source(share=0.5, capacity=3)
    choices = [PackChoice(index) for index in range(3)]
    packs.observe(outcomes(choices, [[[0.0], [0.2]], [[0.0], [0.4]], [[1.0], [1.0]]]))
    kept = [(choice.index, value) for value, choice in packs.source.kept.values()]
    assert kept == [(0, pytest.approx(0.01)), (1, pytest.approx(0.04))]
    counts = Counter()
    for seed in range(2000):
        packs.source.seed = seed
        counts[packs.source.next(3, 2)[0].index] += 1
    assert counts[1] / 2000 == pytest.approx(0.8, abs=0.03)


def test_those_played_last_are_kept_and_a_pack_without_worth_is_forgotten():
    packs = source(capacity=2)
    packs.observe(outcomes([PackChoice(i) for i in range(3)], [[[0.0], [1.0]]] * 3))
    assert list(packs.source.kept) == [1, 2]
    packs.observe(outcomes([PackChoice(1, visit=9), PackChoice(4)], [[[1.0], [1.0]], [[0.0], [1.0]]]))
    assert list(packs.source.kept) == [2, 4]
    assert packs.metrics() == {
        "source/kept": 2,
        "source/revisits": 1,
        "source/worth/new": 0.25,
        "source/worth/revisited": 0.0,
    }


def test_a_replacement_within_a_rollout_is_a_new_pack():
    packs = source()
    played(packs, 1)
    assert any(choice.visit for choice, _ in packs.draw(8, 8))
    assert [choice for choice, _ in packs.draw(16, 3)] == [PackChoice(16), PackChoice(17), PackChoice(18)]


def test_packs_come_back_also_where_some_of_a_rollout_have_overtaken_others():
    packs, signal = source(), [[[0.0], [1.0]]]
    packs.draw(8, 8)
    packs.observe(outcomes([PackChoice(n) for n in (0, 1, 2, 3, 12, 13, 14, 15)], signal * 8))
    again = packs.draw(16, 8, num_waiting=8)
    assert sum(choice.visit > 0 for choice, _ in again) == 4
    packs.observe(outcomes([choice for choice, _ in again[:4]] + [PackChoice(n) for n in (4, 5, 6, 7)], signal * 8))
    assert sum(choice.visit > 0 for choice, _ in packs.draw(24, 8, num_waiting=8)) == 4


@each("back", ["same", "near", "continued"])
def test_asking_twice_changes_nothing_and_a_state_in_json_goes_on_as_the_other_would(back):
    one, other = source(back=back, by="failure"), source(back=back, by="failure")
    played(one, 3)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    before = one.state_dict()
    assert one.draw(24, 8) == one.draw(24, 8) == other.draw(24, 8)
    assert one.state_dict() == before == other.state_dict()
    assert one.metrics() == other.metrics()
    assert source(back=back, by="failure").draw(32, 4) == other.draw(32, 4)


CHANGING = NonStationary(Levers())


@each("env", [GridNavigation(), CHANGING, Mixture({"still": Levers(), "changing": CHANGING})])
def test_an_environment_that_remembers_earlier_tasks_or_changes_its_rule_is_not_continued_in(env):
    with pytest.raises(ConfigError, match=r"data\.source\.back is continued"):
        source(env, back="continued")
