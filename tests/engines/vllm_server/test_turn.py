"""A server's answer, strictly read."""

import pytest

from cod_lightning.engines.vllm_server.turn import answer_of
from cod_lightning.errors import EngineFailure
from tests.cases import each

ANSWER = {
    "choices": [
        {
            "finish_reason": "stop",
            "token_ids": [4, 2],
            "logprobs": {"content": [{"token_id": 4, "logprob": -1.5}, {"token_id": 2, "logprob": -0.5}]},
            "weight_versions": [{"version": "run-7", "start": 0, "end": 2}],
        }
    ],
    "prompt_token_ids": [3, 7, 5],
}


@each(
    ("usage", "counted"),
    [
        (None, (0, 0)),
        ({"prompt_tokens": 3}, (0, 0)),
        ({"prompt_tokens_details": None}, (0, 0)),
        ({"prompt_tokens_details": {"cached_tokens": None}}, (0, 0)),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, (3, 0)),
        ({"prompt_tokens_details": {"cached_tokens": 2}}, (3, 2)),
        ({"prompt_tokens_details": {"cached_tokens": 10**30}}, (3, 3)),
        ({"prompt_tokens_details": {"cached_tokens": -1}}, (3, 0)),
    ],
)
def test_prompt_tokens_count_only_where_the_server_says_how_many_it_had(usage, counted):
    answer = answer_of(ANSWER | {"usage": usage})
    assert (answer.num_prompt_tokens, answer.num_cached_tokens) == counted
    assert (answer.ids, answer.logprobs, answer.versions) == ((4, 2), (-1.5, -0.5), {"run-7"})


@each("usage", ["many", {"prompt_tokens_details": 3}, {"prompt_tokens_details": {"cached_tokens": "x"}}])
def test_what_is_no_answer_fails_the_turn(usage):
    with pytest.raises(EngineFailure, match="a vLLM server's answer lacks"):
        answer_of(ANSWER | {"usage": usage})


@each(("key", "value"), [("token_ids", [4, float("inf")]), ("prompt_token_ids", [2**40])])
def test_numbers_that_are_no_ids_fail_the_turn(key, value):
    (choice,) = ANSWER["choices"]
    spoilt = ANSWER | {key: value} if key in ANSWER else {**ANSWER, "choices": [choice | {key: value}]}
    with pytest.raises(EngineFailure, match="a vLLM server's answer lacks OverflowError"):
        answer_of(spoilt)


@each("spans", [None, []])
def test_tokens_of_weights_that_are_not_named_fail_the_turn(spans):
    (choice,) = ANSWER["choices"]
    with pytest.raises(EngineFailure, match="does not say which weights sampled its tokens"):
        answer_of({**ANSWER, "choices": [choice | {"weight_versions": spans}]})
