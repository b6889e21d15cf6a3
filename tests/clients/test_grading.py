"""A grader's answer is read strictly: one object, each key once."""

import pytest

from cod_lightning.clients.grading import graded_object
from tests.cases import each


@each(
    "answer",
    [
        '{"score":1,"score":0}',
        '{"score": 1, "score": 1}',
        '{"reason": "", "score": {"a": 1, "a": 2}}',
        "1",
        '{"scores": 1}',
        'Sure! {"score": 1}',
        '{"score": 1, "more": 1}',
        "[" * 10_000,
    ],
)
def test_an_object_with_a_key_twice_or_other_keys_is_no_verdict(answer):
    with pytest.raises(ValueError, match="the verdict"):
        graded_object(answer, frozenset({"score"}))


def test_keys_may_come_in_any_order_after_a_thought():
    answer = '<think>{"score": 0}</think>{"reason": "well", "score": 1}'
    assert graded_object(answer, frozenset({"score", "reason"})) == {"score": 1, "reason": "well"}
