"""Token rows and credit tables made of hand-written episodes."""

import math
from dataclasses import replace

import pytest
import torch

from cod_lightning.credit.returns import EpisodeCredit
from cod_lightning.objective.batch import collate, concatenated, one_token
from cod_lightning.rollout.segments import segments_of
from cod_lightning.types import EpisodeKind, EpisodeStatus, Group, Lifecycle, Pack, Split, Task
from tests import records
from tests.cases import each
from tests.credit_tables import credit_table, plain_credit, stamped


def turn(new, action, extends):
    own = {"new_ids": tuple(new), "extends": extends, "action_ids": tuple(action)}
    return records.turn(logprobs=[-i / 10 for i in action], policy_version=4, **own)


def episode(kind, position, reward, *turns):
    status = EpisodeStatus.FAILED if reward is None else EpisodeStatus.COMPLETED
    return records.episode(kind=kind, position=position, status=status, turns=turns, reward=reward)


def group():
    solve, update = EpisodeKind.SOLVE, EpisodeKind.UPDATE
    first = (
        episode(solve, 0, 0.0, turn([1, 2], [11, 12], False), turn([3], [13], True)),
        episode(update, 0, -0.1, turn([4], [14, 15], False)),
        episode(solve, 1, 1.0, turn([5, 6, 7], [16], False)),
    )
    second = (
        episode(solve, 0, 1.0, turn([1, 2], [17], False)),
        episode(update, 0, 0.0, turn([4], [18], False)),
        episode(solve, 1, None, turn([5], [19], False), turn([6], [20], False)),
    )
    pack = Pack(
        id="p", split=Split.TRAIN, world_seed=0, tasks=tuple(Task(id=str(i), seed=i, spec=None) for i in range(2))
    )
    lives = tuple(Lifecycle(pack_id="p", sibling=k, episodes=e) for k, e in enumerate((first, second)))
    return Group(pack=pack, lifecycles=lives)


@pytest.fixture
def batch():
    groups = [group()]
    return collate(segments_of(groups), credit_table(groups), {"p": 0}, pad_id=0)


def test_the_table_holds_raw_rewards_and_says_which_are_missing():
    table = credit_table([group()])
    torch.testing.assert_close(table.rewards, torch.tensor([0.0, -0.1, 1.0, 1.0, 0.0, 0.0]))
    assert table.kinds.tolist() == [0, 1, 0] * 2
    assert table.valid.tolist() == [True] * 5 + [False]
    assert table.action_counts.tolist() == [3, 2, 1, 1, 1, 2]


def test_rows_are_the_merged_turns_right_padded(batch):
    #                             P  P  a0  a0  E  a1
    assert batch.token_ids[0].tolist() == [1, 2, 11, 12, 3, 13]
    assert batch.action_mask[0].tolist() == [False, False, True, True, False, True]
    assert batch.behaviour_logprobs[0].tolist() == pytest.approx([0, 0, -1.1, -1.2, 0, -1.3])
    #                             P  a0  a0  pad
    assert batch.token_ids[1].tolist() == [4, 14, 15, 0, 0, 0]
    assert batch.lengths.tolist() == [6, 3, 4, 3, 2, 2, 2]


def test_a_prompt_that_does_not_extend_begins_a_row_with_the_same_credit(batch):
    assert batch.place.tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 1, 1], [0, 1, 2], [0, 1, 2]]


@each("wide", [False, True])
@each("unknown", [float("nan"), float("inf"), -float("inf")])
def test_tokens_without_a_known_advantage_have_none(batch, unknown, wide):
    of_rows = torch.tensor([1.0, unknown, -2.0, 0.0, unknown, 0.5, 0.5])
    by_token = of_rows[:, None].expand(batch.token_ids.shape) if wide else None
    batch = replace(batch, advantages=torch.zeros(7) if wide else of_rows, by_token=by_token)
    for row, own in enumerate(of_rows.tolist()):
        known = own if math.isfinite(own) else 0.0
        assert batch.token_advantages[row].tolist() == [known if a else 0.0 for a in batch.action_mask[row].tolist()]
        assert batch.known[row].tolist() == [a and math.isfinite(own) for a in batch.action_mask[row].tolist()]


def test_rewards_that_are_whole_numbers_still_make_a_table_of_float32():
    solve, update = EpisodeKind.SOLVE, EpisodeKind.UPDATE
    episodes = (episode(solve, 0, 1), episode(update, 0, -1), episode(solve, 1, 2))
    whole = Group(pack=group().pack, lifecycles=(Lifecycle(pack_id="p", sibling=0, episodes=episodes),))
    table = credit_table([whole])
    assert table.rewards.dtype == torch.float32
    assert EpisodeCredit()(table).values.tolist() == [1.5, 0.5, 2.0]


def test_a_batch_without_rows_has_the_types_of_any_other(batch):
    empty = collate([], credit_table([group()]), {"p": 0}, pad_id=0)
    assert len(empty) == 0
    for name in ("token_ids", "action_mask", "behaviour_logprobs", "place", "policy_version", "lengths"):
        assert getattr(empty, name).dtype == getattr(batch, name).dtype, name
    assert empty.place.shape == (0, 3)
    assert stamped(plain_credit(torch.ones(1, 2, 3)), empty).token_advantages.shape == (0, 0)


def test_tables_and_batches_are_the_same_under_a_default_precision_of_bfloat16(batch):
    torch.set_default_dtype(torch.bfloat16)
    try:
        table = credit_table([group()])
        again = collate(segments_of([group()]), table, {"p": 0}, pad_id=0)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(again.behaviour_logprobs, batch.behaviour_logprobs)
    assert torch.equal(table.rewards, credit_table([group()]).rewards)
    assert again.behaviour_logprobs.dtype == table.rewards.dtype == torch.float32


def test_everything_in_a_batch_goes_to_another_device_with_it(batch):
    moved = replace(batch, old_logprobs=batch.behaviour_logprobs, scores={"teacher": batch.behaviour_logprobs}).to(
        "meta"
    )
    found = [value for value in vars(moved).values() if isinstance(value, torch.Tensor)]
    assert len(found) == 13
    assert {tensor.device.type for tensor in (*found, *moved.scores.values())} == {"meta"}


@each(("groups", "siblings", "tasks"), [(3, 2, 4), (2, 5, 2), (4, 3, 3)])
def test_rows_of_one_episode_have_one_number_and_those_of_one_place_in_a_pack_another(groups, siblings, tasks):
    """Sizes that differ, so that no two of them can be taken for one another."""
    played = [records.group(f"p{g}", [[True] * tasks for _ in range(siblings)]) for g in range(groups)]
    names = {f"p{g}": g for g in range(groups)}
    batch = collate(segments_of(played), credit_table(played), names, pad_id=0)
    for numbers, place in ((batch.episode, lambda g, k, e: (g, k, e)), (batch.siblings, lambda g, k, e: (g, e))):
        seen: dict[int, set] = {}
        for row, index in enumerate(batch.place.tolist()):
            seen.setdefault(int(numbers[row]), set()).add(place(*index))
        assert all(len(places) == 1 for places in seen.values())
        assert len(seen) == len(set.union(*seen.values()))


def test_moved_rows_and_chosen_rows_keep_every_column(batch):
    old = torch.arange(float(batch.token_ids.numel())).view(batch.token_ids.shape)
    marked = replace(batch, advantages=torch.arange(7.0), old_logprobs=old, figures={"x": 1.0}, updates_left=3)
    part = marked.to("cpu").rows(torch.tensor([5, 2]))
    assert part.token_ids.tolist() == [[5, 19, 0, 0], [5, 6, 7, 16]]
    assert torch.equal(part.old_logprobs, old[[5, 2], :4])
    assert part.advantages.tolist() == [5.0, 2.0]
    for name in ("episode", "siblings", "kinds", "is_attempt", "is_replayed", "policy_version", "place", "lengths"):
        assert torch.equal(getattr(part, name), getattr(batch, name)[[5, 2]]), name
    assert (part.figures, part.updates_left) == ({"x": 1.0}, 3)


def test_the_batch_of_a_rank_without_rows_has_one_action_token_and_every_column(batch):
    alone = one_token(
        replace(batch, old_logprobs=batch.behaviour_logprobs, scores={"teacher": batch.advantages[:, None]})
    )
    assert (alone.lengths.tolist(), alone.action_mask.tolist()) == ([2], [[False, True]])
    assert (alone.place.shape, alone.old_logprobs.shape, alone.scores["teacher"].shape) == ((1, 3), (1, 2), (1, 2))


def test_rows_of_several_parts_keep_every_column_and_their_scores(batch):
    own = {
        "advantages": torch.arange(7.0),
        "by_token": batch.behaviour_logprobs,
        "old_logprobs": batch.behaviour_logprobs,
    }
    whole = replace(batch, scores={"teacher": batch.behaviour_logprobs}, **own)
    parts = [whole.rows(torch.tensor(rows)) for rows in ([5, 2], [0, 1, 3, 4, 6])]
    again = concatenated(parts).rows(torch.tensor([2, 3, 1, 4, 5, 0, 6]))
    for name, value in vars(whole).items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(getattr(again, name), value), name
    assert torch.equal(again.scores["teacher"], whole.scores["teacher"])
