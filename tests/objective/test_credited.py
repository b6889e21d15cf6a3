"""What of a credit table has signal, is known, and reaches which token; against loops."""

import math
from dataclasses import replace

import pytest
import torch
from msgspec import structs

from cod_lightning.objective.baselines import GroupMean
from cod_lightning.objective.batch import CreditTable, collate, credit_table
from cod_lightning.objective.credited import Credited, credited
from cod_lightning.objective.returns import TaskCredit
from cod_lightning.objective.reweight import AdaptiveRED
from cod_lightning.rollout.segments import segments_of
from cod_lightning.types import Attempt, AttemptKind, EpisodeKind
from tests import records
from tests.credit_tables import cells, plain_credit, random_table

WITH, WITHOUT = AttemptKind.SAME_CONTEXT, AttemptKind.WITHOUT_CONTEXT


def made(values, attempts=(), of=(), valid=None, attempts_valid=None, filtered=False) -> Credited:
    more = {"attempts": attempts, "of": of, "attempts_valid": attempts_valid, "filtered": filtered}
    return plain_credit(torch.tensor(values), valid, **more)


@pytest.mark.parametrize("seed", range(10))
def test_a_pack_has_signal_if_any_advantage_of_its_episodes_or_attempts_is_not_zero_of_either_sign(seed):
    rng = torch.Generator().manual_seed(seed)
    kept = torch.rand(6, 2, 3, generator=rng) < 0.1
    values = torch.randn(6, 2, 3, generator=rng) * kept + 1e-9
    of = torch.stack([torch.randint(6, (4,), generator=rng), torch.zeros(4).long(), torch.full((4,), 2)], dim=1)
    attempts = torch.randn(4, generator=rng) * (torch.rand(4, generator=rng) < 0.5)
    found = made(values.tolist(), attempts.tolist(), of.tolist()).packs_with_signal()
    for g in range(6):
        beside = [x for place, x in zip(of.tolist(), attempts.tolist(), strict=True) if place[0] == g]
        own = values[g].flatten().tolist()
        assert found[g].item() == any(abs(x) > 1e-6 for x in own + beside)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_single_advantage_is_signal_whichever_sign_it_has(sign):
    assert made([[[0.0], [sign]], [[0.0], [0.0]]]).packs_with_signal().tolist() == [True, False]
    quiet = [[[0.0], [0.0]]] * 2
    assert made(quiet, [sign], [[1, 0, 0]]).packs_with_signal().tolist() == [False, True]


def rollout():
    """Two siblings; beside the second solve of the first, one attempt with a reward, one without, and one that measures."""
    group = records.group("p", [[True, False], [False, True]])
    turns = [records.turn()]
    beside = tuple(
        Attempt(kind=kind, episode=records.solve(1, success, turns=turns))
        for kind, success in ((WITH, None), (WITH, True), (WITHOUT, True))
    )
    first, second = group.lifecycles
    return [structs.replace(group, lifecycles=(structs.replace(first, attempts=beside), second))]


def test_every_action_token_gets_the_advantage_of_its_own_episode_or_attempt():
    groups = rollout()
    batch = collate(segments_of(groups), credit_table(groups), {"p": 0}, pad_id=0)
    credit = made([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]], [7.0, 8.0, 9.0], [[0, 0, 2]] * 3)
    spread = credit.stamped(batch).token_advantages
    for row, (g, k, e) in enumerate(batch.episode_index.tolist()):
        x = batch.attempt[row].item()
        expected = credit.values[g, k, e].item() if x < 0 else credit.attempts[x].item()
        assert spread[row].tolist() == [expected * a for a in batch.action_mask[row].tolist()]
    assert {batch.attempt[row].item() for row in range(len(batch))} == {-1, 0, 1}


def test_a_row_is_known_if_its_own_episode_or_attempt_is_and_not_the_one_beside_it():
    groups = rollout()
    batch = collate(segments_of(groups), credit_table(groups), {"p": 0}, pad_id=0)
    for beside_known in (True, False):
        valid = [[[True, True, beside_known], [True, False, True]]]
        credit = made([[[1.0] * 3] * 2], [1.0] * 3, [[0, 0, 2]] * 3, valid, [False, True, True])
        for row, (g, k, e) in enumerate(batch.episode_index.tolist()):
            x = batch.attempt[row].item()
            known = credit.stamped(batch).advantages[row].isfinite().item()
            assert known == (valid[g][k][e] if x < 0 else (False, True, True)[x])


def test_an_attempt_without_a_reward_is_not_known_and_no_row_of_it_is_trained_on():
    groups = rollout()
    table = credit_table(groups)
    found = credited(table, TaskCredit(), GroupMean())
    assert found.attempts_valid.tolist() == [False, True, False]
    assert found.attempts[0] == found.attempts[2] == 0
    batch = collate(segments_of(groups), table, {"p": 0}, pad_id=0)
    assert found.stamped(batch).advantages.isfinite()[batch.attempt >= 0].tolist() == [False, True]
    counts = replace(table.attempts, action_counts=table.attempts.action_counts * 0)
    assert credited(replace(table, attempts=counts), TaskCredit(), GroupMean()).values.equal(found.values)


def test_red_weighs_attempts_with_their_own_tokens():
    """Long unsuccessful episodes make the sum negative; one long successful attempt makes it positive."""
    table = credit_table(rollout())
    plain = credited(table, TaskCredit(), GroupMean())
    table = replace(table, action_counts=torch.where(plain.values < 0, 10, 1))
    for tokens, tilts in ((1, True), (10_000, False)):
        attempts = replace(table.attempts, action_counts=torch.full_like(table.attempts.action_counts, tokens))
        found = credited(replace(table, attempts=attempts), TaskCredit(), GroupMean(), reweight=AdaptiveRED())
        assert (found.temperature > 0) == tilts


@pytest.mark.parametrize("kind", EpisodeKind)
@pytest.mark.parametrize("reweight", [None, AdaptiveRED()], ids=["plain", "red"])
def test_of_one_role_the_advantages_are_those_of_both_and_of_the_other_nothing_is_known_or_weighed(kind, reweight):
    table = credit_table(rollout())
    both, one = (credited(table, TaskCredit(), GroupMean(), kinds=kinds) for kinds in (tuple(EpisodeKind), (kind,)))
    its = table.kinds == list(EpisodeKind).index(kind)
    assert torch.equal(one.values[..., its], both.values[..., its])
    assert torch.equal(one.valid[..., its], both.valid[..., its])
    assert not one.valid[..., ~its].any()
    assert not one.values[..., ~its].any()
    assert one.attempts_valid.tolist() == (both.attempts_valid.tolist() if kind is EpisodeKind.SOLVE else [False] * 3)
    batch = collate(segments_of(rollout()), table, {"p": 0}, pad_id=0)
    known = one.stamped(batch).advantages.isfinite()
    assert not known[~its[batch.episode_index[:, 2]]].any(), "no row of the other role is in an update"
    longer = replace(table, action_counts=torch.where(its, table.action_counts, 10_000))
    tilted, same = (credited(t, TaskCredit(), GroupMean(), reweight=reweight, kinds=(kind,)) for t in (table, longer))
    assert torch.equal(tilted.tilted, same.tilted), "however long the other role's episodes are"


@pytest.mark.parametrize("filtered", [False, True])
def test_a_filter_takes_rows_of_packs_without_signal_out_and_leaves_all_others_as_they_are(filtered):
    groups = [records.group(name, [[True, False], [False, True]]) for name in "ab"]
    groups[0] = structs.replace(rollout()[0], pack=groups[0].pack)
    batch = collate(segments_of(groups), credit_table(groups), {"a": 0, "b": 1, "p": 0}, pad_id=0)
    for of_a, of_attempt in ((0.0, 0.0), (0.0, 0.5), (0.5, 0.0)):
        values = [[[of_a, 0.0, -of_a]] * 2, [[0.5, 0.0, 0.0], [-0.5, 0.0, 0.0]]]
        credit = made(values, [of_attempt] * 3, [[0, 0, 2]] * 3, filtered=filtered)
        stamped = credit.stamped(batch).advantages
        for row, (g, k, e) in enumerate(batch.episode_index.tolist()):
            if filtered and g == 0 and not of_a and not of_attempt:
                assert stamped[row].isnan()
            else:
                assert stamped[row] == (of_attempt if batch.attempt[row] >= 0 else values[g][k][e])


def test_a_scale_of_the_batch_is_the_deviation_of_advantages_and_not_of_returns():
    """Packs of other levels: returns differ more than advantages do."""
    table = random_table(3, groups=3, siblings=4, missing=0.2)
    table = replace(table, rewards=table.rewards + torch.tensor([0.0, 10.0, 20.0])[:, None, None])
    plain, scaled = (credited(table, TaskCredit(), GroupMean(), mode) for mode in ("none", "batch"))
    known = [plain.values[cell].item() for cell in cells(table) if plain.valid[cell]]
    mean = sum(known) / len(known)
    divisor = (sum((one - mean) ** 2 for one in known) / len(known)) ** 0.5
    assert divisor < 1
    for cell in cells(table):
        assert scaled.values[cell].item() == pytest.approx(plain.values[cell].item() / divisor, rel=1e-4, abs=1e-6)


def test_rows_get_what_the_reweighting_makes_of_advantages_and_sources_and_replays_what_was_before():
    table = replace(credit_table(rollout()), action_counts=torch.tensor([[[1, 1, 1], [90, 1, 1]]]))
    plain, found = (credited(table, TaskCredit(), GroupMean(), reweight=r) for r in (None, AdaptiveRED()))
    batch = collate(segments_of(rollout()), table, {"p": 0}, pad_id=0)
    assert found.temperature > 0
    assert torch.equal(found.values, plain.values)
    for row, stamped in enumerate(found.stamped(batch).advantages.tolist()):
        before = plain.stamped(batch).advantages[row].item()
        assert stamped == pytest.approx(before * math.exp(before / found.temperature), rel=1e-5, nan_ok=True)


def test_the_figures_of_a_rollout_are_means_over_known_rewards_and_shares_of_packs_with_a_known_advantage():
    rewards = torch.tensor(
        [[[1.0, 0.0, 0.5], [0.0, 0.0, 0.5]], [[1.0, 0.0, 0.0], [1.0, 0.0, 9.0]], [[0.0, 0.0, 0.0]] * 2]
    )
    valid = torch.ones(3, 2, 3, dtype=torch.bool)
    valid[1, 1, 2] = False
    valid[2] = False
    table = CreditTable(rewards=rewards, valid=valid, action_counts=valid.long(), kinds=torch.tensor([0, 1, 0]))
    figures = credited(table, TaskCredit(), GroupMean()).figures()
    assert figures == {
        "train/lifecycles": 6.0,
        "train/red_temperature": 0.0,
        "train/zero_variance_packs": 0.5,
        "train/reward/position_0": 0.75,
        "train/reward/position_1": pytest.approx(1 / 3),
    }
