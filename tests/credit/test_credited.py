"""What of a credit table has signal, is known, and reaches which token; against loops."""

import math
import random
from dataclasses import replace
from statistics import pstdev

import pytest
import torch
from msgspec import structs

from cod_lightning.credit.baselines import GroupMean, LeaveOneOut, TermsAlone
from cod_lightning.credit.credited import AdaptiveRED, Credit, Credited, next_solve
from cod_lightning.credit.returns import EpisodeCredit, TaskCredit
from cod_lightning.credit.table import EpisodeFacts, episode_table, kind_id
from cod_lightning.methods.accepted import Accepted
from cod_lightning.methods.asymre import AsymRE
from cod_lightning.methods.revisits import worth
from cod_lightning.objective.batch import collate
from cod_lightning.rollout.segments import segments_of
from cod_lightning.types import EpisodeKind
from tests import records
from tests.cases import each
from tests.credit_tables import (
    credit_table,
    credited_entries,
    cube,
    plain_credit,
    random_table,
    stamped,
)


def made(values, attempts=(), of=(), valid=None, attempts_valid=None, filtered=False) -> Credited:
    """These advantages, [G][K][E], and those of attempts beside the episodes `of`, in the order of packs."""
    packs = [
        [EpisodeFacts(k, e, None, True, e % 2, e // 2, 0.0, 1) for k in range(2) for e in range(3)] for _ in values
    ]
    for x, (g, k, e) in enumerate(of, start=3):
        packs[g].append(EpisodeFacts(k, x, e, True, 0, e // 2, 0.0, 1))
    own, extra = torch.tensor(values).flatten(), torch.tensor(attempts, dtype=torch.float32)
    known = torch.ones_like(own).bool() if valid is None else torch.tensor(valid).flatten()
    beside = torch.ones_like(extra).bool() if attempts_valid is None else torch.tensor(attempts_valid)
    both = torch.cat([own, extra]), torch.cat([known, beside])
    return plain_credit(*both, table=episode_table(packs), filtered=filtered)


@each("seed", range(10))
def test_a_pack_has_signal_if_any_advantage_of_its_episodes_or_attempts_is_not_zero_of_either_sign(seed):
    rng = torch.Generator().manual_seed(seed)
    kept = torch.rand(6, 2, 3, generator=rng) < 0.1
    values = torch.randn(6, 2, 3, generator=rng) * kept + 1e-9
    of = torch.stack(
        [torch.randint(6, (4,), generator=rng).sort().values, torch.zeros(4).long(), torch.full((4,), 2)], dim=1
    )
    attempts = torch.randn(4, generator=rng) * (torch.rand(4, generator=rng) < 0.5)
    found = made(values.tolist(), attempts.tolist(), of.tolist()).packs_with_signal
    for g in range(6):
        beside = [x for place, x in zip(of.tolist(), attempts.tolist(), strict=True) if place[0] == g]
        own = values[g].flatten().tolist()
        assert found[g].item() == any(abs(x) > 1e-6 for x in own + beside)


def rollout():
    """Two siblings; beside the second solve of the first, one attempt with a reward, one without, and one that measures."""
    group = records.group("p", [[True, False], [False, True]])
    turns = [records.turn()]
    beside = (
        records.attempt(1, success, trained=trained, turns=turns)
        for success, trained in ((None, True), (True, True), (True, False))
    )
    first, second = group.lifecycles
    return [structs.replace(group, lifecycles=(records.with_attempts(first, *beside), second))]


def test_the_tokens_of_a_row_get_the_advantage_of_its_own_episode_or_attempt_where_that_one_is_known():
    groups = rollout()
    batch = collate(segments_of(groups), credit_table(groups), {"p": 0}, pad_id=0)
    assert sorted(batch.episode.tolist()) == list(range(8))
    assert batch.is_attempt.tolist() == (batch.episode >= 6).tolist()
    for beside_known in (True, False):
        valid = [[[True, True, beside_known], [True, False, True]]]
        values = [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]
        found = stamped(made(values, [7.0, 8.0, 9.0], [[0, 0, 2]] * 3, valid, [False, True, True]), batch)
        for row, (g, k, e) in enumerate(batch.place.tolist()):
            x = batch.episode[row].item() - 6
            own, known = (values[g][k][e], valid[g][k][e]) if x < 0 else (7.0 + x, (False, True, True)[x])
            assert found.advantages[row].isfinite().item() == known
            if known:
                assert found.token_advantages[row].tolist() == [own * a for a in batch.action_mask[row].tolist()]


def test_an_attempt_without_a_reward_is_not_known_and_no_row_of_it_is_trained_on():
    groups = rollout()
    table = credit_table(groups)
    found = credited_entries(table, TaskCredit(), GroupMean())
    assert found.valid[~table.own].tolist() == [False, True, False]
    assert found.values[~table.own][::2].tolist() == [0.0, 0.0]
    batch = collate(segments_of(groups), table, {"p": 0}, pad_id=0)
    assert stamped(found, batch).advantages.isfinite()[batch.is_attempt].tolist() == [False, True]
    counts = torch.where(table.own, table.action_counts, 0)
    same = credited_entries(replace(table, action_counts=counts), TaskCredit(), GroupMean())
    assert same.values.equal(found.values)


@each("kind", EpisodeKind)
@each("reweight", [None, AdaptiveRED()])
def test_of_one_role_the_advantages_are_those_of_both_and_of_the_other_nothing_is_known_or_weighed(kind, reweight):
    table, number = credit_table(rollout()), list(EpisodeKind).index(kind)
    rules = TaskCredit(), GroupMean()
    both, one = (credited_entries(table, *rules, kinds=kinds) for kinds in (tuple(EpisodeKind), (kind,)))
    its = table.kinds == number
    assert torch.equal(one.values[its], both.values[its])
    assert torch.equal(one.valid[its], both.valid[its])
    assert not one.valid[~its].any()
    assert not one.values[~its].any()
    batch = collate(segments_of(rollout()), table, {"p": 0}, pad_id=0)
    known = stamped(one, batch).advantages.isfinite()
    assert not known[batch.kinds != number].any(), "no row of the other role is in an update"
    longer = replace(table, action_counts=torch.where(its, table.action_counts, 10_000))
    tilted, same = (credited_entries(t, *rules, reweight=reweight, kinds=(kind,)) for t in (table, longer))
    assert torch.equal(tilted.tilted, same.tilted), "however long the other role's episodes are"


@each(
    ("baseline", "expected"),
    [(TermsAlone(), [True, False]), (Accepted(at_least=1.0), [True, False]), (GroupMean(), [False] * 2)],
)
def test_where_nothing_is_compared_a_pack_has_signal_if_any_of_it_is_trained_on(baseline, expected):
    alike, lost = ([EpisodeFacts(k, 0, None, True, 0, 0, reward, 3) for k in range(2)] for reward in (1.0, None))
    table = episode_table([alike, lost])
    for filtered in (False, True):
        found = credited_entries(table, EpisodeCredit(), baseline, filtered=filtered)
        assert found.packs_with_signal.tolist() == expected
        assert found.figures()["train/zero_variance_packs"] == (0.0 if expected[0] else 1.0)
        assert found.trained.tolist() == ([True] * 2 if expected[0] or not filtered else [False] * 2) + [False] * 2


def test_packs_that_are_filtered_have_no_say_in_the_tilt_of_those_that_are_trained_on():
    """A shifted baseline gives siblings that do equally well an advantage above 0."""
    equal, apart = [(1.0, 90), (1.0, 90)], [(1.0, 1), (0.0, 2)]
    facts = [
        [EpisodeFacts(k, 0, None, True, 0, 0, reward, n) for k, (reward, n) in enumerate(of)] for of in (equal, apart)
    ]
    how = {"reweight": AdaptiveRED(), "filtered": True}
    both, alone = (
        credited_entries(episode_table(packs), TaskCredit(), AsymRE(), **how) for packs in (facts, facts[1:])
    )
    assert both.temperature == alone.temperature > 0
    assert both.advantages.isnan().tolist() == [True, True, False, False]
    assert torch.equal(both.advantages[2:], alone.advantages)


@each("filtered", [False, True])
def test_a_filter_takes_rows_of_packs_without_signal_out_and_leaves_all_others_as_they_are(filtered):
    groups = [records.group(name, [[True, False], [False, True]]) for name in "ab"]
    groups[0] = structs.replace(rollout()[0], pack=groups[0].pack)
    batch = collate(segments_of(groups), credit_table(groups), {"a": 0, "b": 1, "p": 0}, pad_id=0)
    for of_a, of_attempt in ((0.0, 0.0), (0.0, 0.5), (0.5, 0.0)):
        values = [[[of_a, 0.0, -of_a]] * 2, [[0.5, 0.0, 0.0], [-0.5, 0.0, 0.0]]]
        credit = made(values, [of_attempt] * 3, [[0, 0, 2]] * 3, filtered=filtered)
        found = stamped(credit, batch).advantages
        for row, (g, k, e) in enumerate(batch.place.tolist()):
            if filtered and g == 0 and not of_a and not of_attempt:
                assert found[row].isnan()
            else:
                assert found[row] == (of_attempt if batch.is_attempt[row] else values[g][k][e])


def test_a_scale_of_the_batch_is_the_deviation_of_advantages_and_not_of_returns():
    """Packs of other levels: returns differ more than advantages do."""
    table = random_table(3, groups=3, siblings=4, missing=0.2)
    table = replace(table, rewards=table.rewards + torch.tensor([0.0, 10.0, 20.0])[:, None, None])
    plain, scaled = (credited_entries(table.flat(), TaskCredit(), GroupMean(), mode) for mode in ("none", "batch"))
    divisor = plain.values[plain.valid].std(correction=0)
    assert divisor < 1
    torch.testing.assert_close(scaled.values, plain.values / divisor, rtol=1e-4, atol=1e-6)


def test_rows_get_what_the_reweighting_makes_of_advantages_and_sources_and_replays_what_was_before():
    table = credit_table(rollout())
    table = replace(table, action_counts=table.action_counts.index_fill(0, torch.tensor([3]), 90))
    plain, found = (credited_entries(table, TaskCredit(), GroupMean(), reweight=r) for r in (None, AdaptiveRED()))
    batch = collate(segments_of(rollout()), table, {"p": 0}, pad_id=0)
    assert found.temperature > 0
    assert torch.equal(found.values, plain.values)
    for row, after in enumerate(stamped(found, batch).advantages.tolist()):
        before = stamped(plain, batch).advantages[row].item()
        assert after == pytest.approx(before * math.exp(before / found.temperature), rel=1e-5, nan_ok=True)


def loop(lives, rule, k, e):
    """Return by the definition of an episode of these lifecycles, lists of (kind, position, reward); None if it is missing."""
    needed = [lives[k][e][2]]
    if isinstance(rule, EpisodeCredit):
        needed += [reward for kind, _, reward in lives[k][e + 1 :] if kind == "solve"]
    return None if None in needed else sum(needed) / len(needed)


@each("seed", range(6), slow=range(6, 20))
@each("rule", [EpisodeCredit(), TaskCredit()])
@each("baseline", [GroupMean(), LeaveOneOut()])
def test_ragged_numbers_of_siblings_tasks_and_episodes_are_compared_as_the_loop_does(seed, rule, baseline):
    """Packs of one to four lifecycles; each through one to four tasks, updating its context now and then."""
    rng = random.Random(seed)

    def drawn():
        life = []
        for position in range(rng.randint(1, 4)):
            life.append(("solve", position, rng.choice([0.0, 1.0, 0.25, None])))
            if rng.random() < 0.5:
                life.append(("update", position, rng.choice([0.0, -0.5])))
        return life

    packs = [[drawn() for _ in range(rng.randint(1, 4))] for _ in range(5)]
    facts = [
        [
            EpisodeFacts(k, e, None, True, kind_id(EpisodeKind(kind)), position, reward, 1)
            for k, life in enumerate(lives)
            for e, (kind, position, reward) in enumerate(life)
        ]
        for lives in packs
    ]
    table = episode_table(facts)
    found = credited_entries(table, rule, baseline, reweight=None)
    scaled = credited_entries(table, rule, baseline, "group")
    for f, (g, k, e) in enumerate(table.place.tolist()):
        kind, position, _ = packs[g][k][e]
        same = [
            (other, loop(packs[g], rule, other, at))
            for other, life in enumerate(packs[g])
            for at, one in enumerate(life)
            if one[:2] == (kind, position)
        ]
        known = {other: value for other, value in same if value is not None}
        assert found.valid[f].item() == (k in known and len(known) >= 2)
        if k in known:
            assert found.returns.values[f].item() == pytest.approx(known[k], abs=1e-6)
            assert found.group_returns[f].item() == pytest.approx(sum(known.values()) / len(known), abs=1e-6)
        if found.valid[f]:
            others = [value for other, value in known.items() if other != k or isinstance(baseline, GroupMean)]
            assert found.values[f].item() == pytest.approx(known[k] - sum(others) / len(others), abs=1e-6)
            spread = pstdev(known.values())
            expected = found.values[f].item() / spread if spread > 1e-6 else 0.0
            assert scaled.values[f].item() == pytest.approx(expected, abs=1e-4)
    figures = found.figures()
    assert figures["train/lifecycles"] == sum(map(len, packs))
    for position in range(4):
        rewards = [
            r
            for lives in packs
            for life in lives
            for kind, n, r in life
            if (kind, n) == ("solve", position) and r is not None
        ]
        name = f"train/reward/position_{position}"
        assert (name in figures) == bool(rewards)
        if rewards:
            assert figures[name] == pytest.approx(sum(rewards) / len(rewards), abs=1e-6)


@each("baseline", [GroupMean(), LeaveOneOut()])
def test_a_context_is_measured_by_the_next_task_also_where_updates_are_rare(baseline):
    """Plan solve 0, solve 1, update 1, solve 2, ...: attempts without the context at solve 2 measure update 1."""
    kinds, rng = torch.tensor([0, 0, 1, 0, 0]), random.Random(2)
    assert next_solve(kinds).tolist() == [1, 3, 3, 4, 4]
    plan = list(enumerate(zip(kinds.tolist(), (0, 1, 1, 2, 3), strict=True)))
    packs = [
        [EpisodeFacts(k, e, None, True, *step, rng.random(), 1) for k in range(5) for e, step in plan] for _ in range(2)
    ]
    beside = [EpisodeFacts(0, e, 3, False, 0, 2, reward, 1) for e, reward in ((5, 0.3), (6, 0.8))]
    plain, found = (
        credited_entries(episode_table([packs[0] + more, packs[1]]), EpisodeCredit(), baseline) for more in ([], beside)
    )
    w, rewards = EpisodeCredit().weights(kinds)[2, 3].item(), cube(plain.table.rewards, plain.table)[0, :, 3]
    returns = cube(plain.returns.values, plain.table)[0, :, 2] - w * rewards
    others = returns[1:] if isinstance(baseline, LeaveOneOut) else returns
    expected = returns[0] - others.mean() + w * (rewards[0] - 0.55)
    assert found.values[2].item() == pytest.approx(expected.item(), abs=1e-5)
    assert torch.equal(found.values[25:50], plain.values[25:])


def test_packs_that_are_alike_are_one_dense_layout_and_others_one_for_each_shape():
    alike = random_table(0, groups=3, siblings=2, tasks=2).flat()
    (layout,) = alike.layouts
    assert layout.tolist() == torch.arange(18).view(3, 2, 3).tolist()
    one = EpisodeFacts(0, 0, None, True, 0, 0, 1.0, 1)
    ragged = episode_table([[one, one._replace(sibling=1), one._replace(sibling=1, episode=1, position=1)], [one]])
    assert [layout.tolist() for layout in ragged.layouts] == [[[[0, -1], [1, 2]]], [[[3]]]]


def test_a_single_lifecycle_has_advantages_where_nothing_is_compared_and_none_elsewhere():
    table = random_table(0, groups=2, siblings=1, missing=0.0)
    for baseline, known in (
        (TermsAlone(), True),
        (Accepted(at_least=-9.0), True),
        (GroupMean(), False),
        (Accepted(), False),
    ):
        assert credited_entries(table.flat(), TaskCredit(), baseline).valid.all() == known
        assert baseline.compares == (not known)
    assert not credited_entries(table.flat(), TaskCredit(), TermsAlone(), reweight=AdaptiveRED()).tilted.any()


@each("scale", ["none", "group", "batch"])
def test_siblings_that_do_equally_well_have_no_advantage_however_large_their_rewards(scale):
    rng = random.Random(0)
    for number in range(21):
        siblings, rewards = 2 + number % 7, [rng.uniform(-1e4, 1e4) * (e % 2 == 0) for e in range(7)]
        own = [(k, e, None, True, e % 2, e // 2, rewards[e], 9) for k in range(siblings) for e in range(7)]
        beside = [(k, 7 + x, 4, True, 0, 2, rewards[4], 9) for k in range(siblings) for x in range(3)]
        for facts in (own, own + beside):
            table = episode_table([[EpisodeFacts(*one) for one in facts]])
            for baseline in (GroupMean(), LeaveOneOut()):
                found = credited_entries(table, EpisodeCredit(), baseline, scale)
                assert found.valid.all()
                assert not found.values.any()
                torch.testing.assert_close(found.group_returns, found.returns.values, rtol=0, atol=0)


def test_packs_that_nothing_is_compared_in_are_not_said_to_be_without_signal_where_a_critic_gives_one():
    alone, tied = ([EpisodeFacts(k, 0, None, True, 0, 0, 1.0, 3) for k in range(num)] for num in (1, 2))
    for packs, criticised, share in (([alone], False, 1.0), ([alone], True, None), ([alone, tied], True, 1.0)):
        found = credited_entries(episode_table(packs), EpisodeCredit(), GroupMean(), criticised=criticised)
        assert found.figures().get("train/zero_variance_packs") == share


def test_lifecycles_without_a_solve_episode_have_figures_and_credit_beside_those_with_attempts():
    """Of a program that goes no further where the text that it asks for failed."""
    lost = [EpisodeFacts(k, 0, None, True, kind_id(EpisodeKind.WRITE), 0, None, 3) for k in range(2)]
    found = credited_entries(episode_table([lost]), EpisodeCredit(), GroupMean())
    assert found.figures() == {
        "train/lifecycles": 2.0,
        "train/red_temperature": 0.0,
        "train/zero_variance_packs": 1.0,
    }
    rewards, valid = found.table.solved()
    for by in ("variance", "regret", "failure"):
        assert worth(rewards, valid, by).tolist() == [0.0]
    attempted = [EpisodeFacts(2, 0, None, True, 0, 0, 1.0, 3), EpisodeFacts(2, 1, 0, True, 0, 0, 0.0, 3)]
    found = credited_entries(episode_table([[*lost, *attempted]]), EpisodeCredit(), GroupMean())
    assert found.valid.tolist() == [False, False, False, True]
    assert found.values.tolist() == [0.0, 0.0, 0.0, -0.5]


def test_packs_that_are_filtered_teach_a_critic_nothing_and_all_others_are_in_its_updates():
    rewards = [[1.0, 1.0], [1.0, 0.0], [None, 0.0]]
    table = episode_table([[EpisodeFacts(k, 0, None, True, 0, 0, r, 3) for k, r in enumerate(of)] for of in rewards])
    for filtered, returns in ((False, [1, 1, 1, 0, None, 0]), (True, [None, None, 1, 0, None, None])):
        found = credited_entries(table, EpisodeCredit(), GroupMean(), filtered=filtered, criticised=True)
        known = [None if math.isnan(value) else value for value in found.known_returns.tolist()]
        assert known == returns
        assert found.trained.tolist() == [value is not None for value in returns]


@each("seed", range(4))
def test_the_credit_of_packs_and_of_others_behind_them_is_that_of_all_where_no_number_is_of_the_whole_rollout(seed):
    rng = random.Random(seed)

    def own(k, e):
        return EpisodeFacts(k, e, None, True, e % 2, e // 2, rng.choice([0.0, 0.5, 1.0, None]), 3)

    def attempt(k, e, n):
        return EpisodeFacts(k, e, 2 * n, rng.random() < 0.7, 0, n, rng.choice([0.0, 1.0]), 3)

    packs = [
        [one for k in range(3) for one in (*(own(k, e) for e in range(3)), *(attempt(k, 3 + n, n) for n in range(k)))]
        for _ in range(5)
    ]
    credit, table = Credit(EpisodeCredit(), AsymRE(), "group", filtered=True, criticised=True), episode_table(packs)
    found = credit(episode_table(packs[:3])).beside(credit(episode_table(packs[3:])), table)
    whole = credit(table)
    for name in ("values", "valid", "tilted", "of_equals", "of_attempts", "criticised", "packs_with_signal", "trained"):
        assert torch.equal(getattr(found, name), getattr(whole, name)), name
    assert torch.equal(found.known_returns.nan_to_num(7.0), whole.known_returns.nan_to_num(7.0))
    assert torch.equal(found.group_returns, whole.group_returns)
