"""What a completion may be, each bound from both sides."""

import numpy as np
import pytest
from msgspec import structs

from cod_lightning.engines.base import Completion
from cod_lightning.errors import BadCompletion
from cod_lightning.rollout.boundaries import check_completion
from cod_lightning.types import StopReason
from tests.cases import each

GOOD = Completion(
    action_ids=(3, 9), behaviour_logprobs=(-1.5, 0.0), stop=StopReason.STOP, policy_version=4, prompt_digest=77
)


def check(**changes):
    return check_completion(structs.replace(GOOD, **changes), max_new_tokens=2, num_ids=10, prompt_digest=77)


@each(
    "changes",
    [
        {},
        {"action_ids": (0, 9)},
        {"action_ids": (3,), "behaviour_logprobs": (-1,)},
        {"behaviour_logprobs": (0.0, 0.005)},  # a log-softmax in low precision
        {"behaviour_logprobs": (-1e9, -3.0)},
        {"policy_version": -1},
        {"stop": StopReason.LENGTH},
        {"action_ids": (), "behaviour_logprobs": (), "stop": StopReason.WINDOW},
    ],
)
def test_what_can_be_passes_unchanged(changes):
    assert check(**changes) == structs.replace(GOOD, **changes)


@each(
    ("changes", "complaint"),
    [
        ({"action_ids": (), "behaviour_logprobs": ()}, "no tokens"),
        ({"action_ids": (3, 9, 4), "behaviour_logprobs": (-1.0,) * 3}, "3 tokens where 2 were asked for"),
        ({"behaviour_logprobs": (-1.0,)}, "1 log-probs for 2 tokens"),
        ({"action_ids": (10, 9)}, "token id 10, outside the vocabulary of 10"),
        ({"action_ids": (-1, 9)}, "token id -1, outside"),
        ({"action_ids": (None, 9)}, "token ids of type NoneType"),
        ({"action_ids": (True, 9)}, "token ids of type bool"),
        ({"action_ids": (np.int64(3), 9)}, "token ids of type int64"),
        ({"action_ids": (3.0, 9)}, "token ids of type float"),
        ({"behaviour_logprobs": (np.float32(-1), -1.0)}, "log-probs of type float32"),
        ({"behaviour_logprobs": (False, -1.0)}, "log-probs of type bool"),
        ({"behaviour_logprobs": ("-1", -1.0)}, "log-probs of type str"),
        ({"behaviour_logprobs": (float("nan"), -1.0)}, "log-prob nan"),
        ({"behaviour_logprobs": (0.02, -1.0)}, "log-prob 0.02"),
        ({"behaviour_logprobs": (float("inf"), float("-inf"))}, "log-prob inf"),
        ({"behaviour_logprobs": (-0.5, float("-inf"))}, "log-prob -inf"),
        ({"stop": "stop"}, "stop 'stop'"),
        ({"policy_version": "4"}, "policy version '4'"),
        ({"policy_version": None}, "policy version None"),
        ({"prompt_digest": 78}, "other ids than those of the prompt"),
    ],
)
def test_what_cannot_be_is_named(changes, complaint):
    with pytest.raises(BadCompletion, match=complaint):
        check(**changes)
