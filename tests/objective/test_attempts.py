"""The table of attempts beside the lifecycles, from records."""

import torch
from msgspec import structs

from cod_lightning.objective.batch import attempt_table, collate, credit_table
from cod_lightning.rollout.segments import segments_of
from cod_lightning.types import Attempt, AttemptKind
from tests import records

WITH, WITHOUT = AttemptKind.SAME_CONTEXT, AttemptKind.WITHOUT_CONTEXT


def attempt(kind, position, success, num_tokens=2, num_turns=1):
    turns = [records.turn(logprobs=(-0.5,) * num_tokens)] * num_turns
    return Attempt(kind=kind, episode=records.solve(position, success, turns=turns))


def groups():
    plain = [records.group(name, [[True, False, True]] * 2) for name in ("a", "b")]
    beside = {
        (0, 1): [attempt(WITH, 1, True, num_tokens=3), attempt(WITHOUT, 1, None)],
        (1, 0): [attempt(WITHOUT, 2, False, num_tokens=5)],
        (1, 1): [attempt(WITH, 2, False, num_tokens=2, num_turns=4), attempt(WITH, 1, None, num_turns=0)],
    }
    return [
        structs.replace(
            group,
            lifecycles=tuple(
                structs.replace(life, attempts=tuple(beside.get((g, k), ()))) for k, life in enumerate(group.lifecycles)
            ),
        )
        for g, group in enumerate(plain)
    ]


def test_the_table_names_the_solve_episode_beside_each_attempt_and_holds_reward_kind_and_tokens():
    table = attempt_table(groups())
    assert table.of.tolist() == [[0, 1, 2], [0, 1, 2], [1, 0, 4], [1, 1, 4], [1, 1, 2]]
    assert table.same_context.tolist() == [True, False, False, True, True]
    assert table.rewards.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert table.valid.tolist() == [True, False, True, True, False]
    assert table.action_counts.tolist() == [3, 2, 5, 8, 0]


def test_a_rollout_without_attempts_has_a_table_of_no_rows_with_the_same_types():
    full, empty = attempt_table(groups()), attempt_table([])
    for name in ("of", "same_context", "rewards", "valid", "action_counts"):
        assert len(getattr(empty, name)) == 0
        assert getattr(empty, name).dtype == getattr(full, name).dtype
    assert empty.rewards.dtype == torch.float32


def test_rows_of_an_attempt_have_a_key_that_no_episode_of_a_lifecycle_has():
    own = groups()
    batch = collate(segments_of(own), credit_table(own), {"a": 0, "b": 1}, pad_id=0)
    keys, extra = batch.episode, batch.attempt >= 0
    assert len(set(keys[extra].tolist())) == len(set(batch.attempt[extra].tolist())) > 1
    assert not set(keys[extra].tolist()) & set(keys[~extra].tolist())
