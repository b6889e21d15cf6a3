"""A server's answer, strictly read."""

import pytest

from cod_lightning.engines.vllm_server.client import answer_of
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


def test_an_answer_has_ids_log_probs_and_the_weights_that_sampled_them():
    turn, versions = answer_of(ANSWER)
    assert (turn.action_ids, turn.behaviour_logprobs, versions) == ((4, 2), (-1.5, -0.5), {"run-7"})


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
