"""The table of turns: what a slot's turn has been given stays its own while others begin and the table grows."""

import numpy as np
import torch

from cod_lightning.engines.base import Request
from cod_lightning.engines.turn_table import TurnTable


def _request(prompt: int, most: int) -> Request:
    ids = list(range(prompt))
    return Request(dialogue="d", prompt_ids=ids, messages=(), max_new_tokens=most, noise_seed=7, temperature=0.0)


def _logits(*likely: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(likely), 10).float() * 5


def test_a_turn_keeps_its_tokens_while_the_table_grows():
    table = TurnTable()
    table.begin(np.array([0]), [_request(3, 2)])
    table.sample(np.array([0]), _logits(4))
    table.begin(np.array([5]), [_request(8, 40)])
    table.sample(np.array([0, 5]), _logits(6, 9))
    expected = torch.log_softmax(_logits(4), dim=-1).max().item()
    sampled, logprobs = zip(*table.sampled(np.array([5, 0])), strict=True)
    assert sampled == ((9,), (4, 6))
    assert np.allclose([p for each in logprobs for p in each], expected, atol=1e-6)
    assert list(table.sampled(np.array([], np.int64))) == []
    ids, columns = table.next_inputs(np.array([0, 5]))
    assert (ids.tolist(), columns.tolist()) == ([6, 9], [4, 8])


def test_a_turn_ends_at_a_stop_token_or_at_its_limit():
    table, slots = TurnTable(stop_ids=[3]), np.array([0, 1, 2])
    table.begin(slots, [_request(2, most) for most in (1, 9, 9)])
    table.sample(slots, _logits(4, 3, 4))
    assert table.over(slots).tolist() == [True, True, False]
