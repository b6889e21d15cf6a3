"""The table of attempts beside the lifecycles, from records."""

from msgspec import structs

from cod_lightning.objective.batch import collate
from cod_lightning.rollout.segments import segments_of
from tests import records
from tests.credit_tables import credit_table

WITH, WITHOUT = True, False


def attempt(trained, position, success, num_tokens=2, num_turns=1):
    turns = [records.turn(logprobs=(-0.5,) * num_tokens)] * num_turns
    return records.attempt(position, success, trained=trained, turns=turns)


def groups():
    plain = [records.group(name, [[True, False, True]] * 2) for name in ("a", "b")]
    beside = {
        (0, 0): [attempt(WITHOUT, 2, True)],
        (0, 1): [attempt(WITH, 1, True, num_tokens=3), attempt(WITHOUT, 1, None)],
        (1, 0): [attempt(WITHOUT, 2, False, num_tokens=5)],
        (1, 1): [attempt(WITH, 2, False, num_tokens=2, num_turns=4), attempt(WITH, 1, None, num_turns=0)],
    }
    return [
        structs.replace(
            group,
            lifecycles=tuple(
                records.with_attempts(life, *beside.get((g, k), ())) for k, life in enumerate(group.lifecycles)
            ),
        )
        for g, group in enumerate(plain)
    ]


def test_the_table_names_the_solve_episode_beside_each_attempt_and_holds_reward_kind_and_tokens():
    table = credit_table(groups())
    extra = slice(2 * 2 * 5, None)
    parents = table.place[table.parent[extra]].tolist()
    assert parents == [[0, 0, 4], [0, 1, 2], [0, 1, 2], [1, 0, 4], [1, 1, 4], [1, 1, 2]]
    assert table.place[extra].tolist() == [[0, 0, 5], [0, 1, 5], [0, 1, 6], [1, 0, 5], [1, 1, 5], [1, 1, 6]]
    assert (table.parent[table.own] == -1).all()
    assert table.trained[extra].tolist() == [False, True, False, False, True, True]
    assert table.rewards[extra].tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert table.valid[extra].tolist() == [True, True, False, True, True, False]
    assert table.action_counts[extra].tolist() == [2, 3, 2, 5, 8, 0]


def test_rows_of_an_attempt_at_the_very_first_episode_are_told_from_the_episodes_own():
    group = records.group("a", [[True, False]] * 2)
    first, other = group.lifecycles
    own = [structs.replace(group, lifecycles=(records.with_attempts(first, attempt(WITH, 0, True)), other))]
    batch = collate(segments_of(own), credit_table(own), {"a": 0}, pad_id=0)
    assert batch.is_attempt.sum() == 1
