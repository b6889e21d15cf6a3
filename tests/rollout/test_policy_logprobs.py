"""Lines about log-probs come back as they went, or say why not."""

import json

import pytest

from cod_lightning.errors import DataError
from cod_lightning.rollout.policy_logprobs import PolicyLogprobs, action_digest, dump, load
from tests.cases import each
from tests.records import solve, turn

RECORD = PolicyLogprobs(
    step=4, pack="lake/1", sibling=2, episode=3, updates=1, digest=7, advantage=-0.25, logprobs=[-0.5, -12.25, -1e-4]
)


def test_a_line_reads_back_as_it_was_and_one_of_another_schema_is_named() -> None:
    assert load(dump(RECORD)) == RECORD
    with pytest.raises(DataError, match="schema 9, not 2"):
        load(json.dumps(json.loads(dump(RECORD)) | {"schema": 9}))


@each("line", [b"\xff", dump(RECORD)[:40], dump(RECORD).replace("-0.5", "NaN"), "{}"])
def test_a_damaged_line_is_told_from_a_whole_one(line: str | bytes) -> None:
    with pytest.raises(DataError, match="torn or damaged"):
        load(line)


def test_the_digest_is_that_of_all_turns_in_a_row() -> None:
    two = solve(0, True, turns=(turn(logprobs=(-1.0, -2.0)), turn(logprobs=(-1.0,))))
    one = solve(0, True, turns=(turn(logprobs=(-1.0, -2.0)),))
    assert action_digest(two) != action_digest(one)
