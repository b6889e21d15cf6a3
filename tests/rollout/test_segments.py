"""Rows of tokens from turns, against a loop over tokens."""

import random

from msgspec import structs

from cod_lightning.rollout.segments import count_drift, segments_of
from cod_lightning.types import StopReason
from tests import records
from tests.cases import each


def random_turns(rng, num):
    """Some extend the one before, some begin again, some have no answer; versions and ids differ."""
    return [
        structs.replace(
            records.turn(logprobs=[-rng.random() for _ in range(rng.choice((0, 1, 1, 3)))]),
            new_ids=tuple(rng.randrange(50) for _ in range(rng.randrange(1, 4))),
            extends=n > 0 and rng.random() < 0.6,
            policy_version=rng.randrange(9),
        )
        for n in range(num)
    ]


def rows_by_hand(turns):
    """Token by token: id, whether it is an action, its log-prob, and the versions of a row."""
    rows = []
    for turn in turns:
        begins = not turn.extends or not rows
        if begins and (not rows or rows[-1][0]):
            rows.append(([], []))
        if not turn.action_ids:
            continue
        tokens = [(i, False, 0.0) for i in turn.new_ids]
        tokens += [(i, True, p) for i, p in zip(turn.action_ids, turn.behaviour_logprobs, strict=True)]
        rows[-1][0].extend(tokens)
        rows[-1][1].append(turn.policy_version)
    return [(tokens, min(versions)) for tokens, versions in rows if tokens]


def group_of(episodes):
    group = records.group("p", [[True] * 3])
    life = structs.replace(group.lifecycles[0], sibling=4, episodes=tuple(episodes))
    return structs.replace(group, lifecycles=(life,))


@each("seed", range(20))
def test_rows_are_the_turns_that_extend_one_another_with_the_oldest_version_of_their_tokens(seed):
    rng = random.Random(seed)
    turns = [random_turns(rng, rng.randrange(6)) for _ in range(3)]
    group = group_of(
        [
            records.solve(0, True, turns=turns[0]),
            records.update(0, turns=turns[1]),
            records.solve(1, True, turns=turns[2]),
        ]
    )
    expected = [(e, *row) for e, own in enumerate(turns) for row in rows_by_hand(own)]
    found = [
        (s.episode, list(zip(s.token_ids, s.action_mask, s.behaviour_logprobs, strict=True)), s.policy_version)
        for s in segments_of([group])
    ]
    assert found == expected
    assert all((s.pack_id, s.sibling) == ("p", 4) for s in segments_of([group]))


def test_a_turn_that_was_never_answered_is_in_no_row():
    silent = structs.replace(records.turn(logprobs=()), stop=StopReason.WINDOW)
    assert segments_of([group_of([records.solve(0, True, turns=[silent])])]) == []
    begun_again = structs.replace(silent, extends=False)
    (row,) = segments_of([group_of([records.solve(0, True, turns=[records.turn(), begun_again])])])
    assert row.token_ids == (5, 6, 7, 0, 1)


def test_attempts_with_the_context_come_after_the_lifecycle_s_own_rows_and_the_others_are_in_none():
    own = [records.solve(0, True, turns=[records.turn()]), records.update(0), records.solve(1, True)]
    beside = [records.attempt(1, True, trained=n > 1, turns=[records.turn(logprobs=(-0.5,) * n)]) for n in (1, 2, 3)]
    rows = segments_of([group_of(own + beside)])
    assert [(s.episode, sum(s.action_mask)) for s in rows] == [(0, 2), (4, 2), (5, 3)]


def test_drift_is_counted_in_lifecycles_and_in_attempts():
    off = structs.replace(records.turn(logprobs=(-0.5,) * 3), prompt_digest=1)
    own = [records.solve(0, True, turns=[records.turn()]), records.update(0), records.solve(1, True)]
    beside = [records.attempt(1, True, trained=trained, turns=[off]) for trained in (True, False)]
    assert count_drift([group_of(own)]) == 0
    assert count_drift([group_of(own + beside)]) == 6
    assert count_drift([group_of([records.solve(0, True, turns=[off])])]) == 3
