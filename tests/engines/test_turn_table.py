"""The table of turns: a slot begins with the longest common beginning, and its turn stays its own while others begin.
Sampling against its definition, row by row, and the generator of its noise against published numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.beginnings import num_alike
from cod_lightning.engines.base import Request
from cod_lightning.engines.decoder import Openings
from cod_lightning.engines.turn_table import TurnTable, sample, uniforms
from tests.cases import each

MASK = 2**64 - 1
PUBLISHED = (6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821)
"""The first outputs of SplitMix64 seeded with 1234567 (https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64)."""


def splitmix64(seed: int):
    """Steele, Lea, Flood (OOPSLA 2014), in Python's own integers."""
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & MASK
        z = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def test_the_noise_is_splitmix64_as_published():
    found = uniforms(np.full(5, 1234567, np.uint64), np.arange(5, dtype=np.uint64))
    assert found.tolist() == [(number >> 11) / 2**53 for number in PUBLISHED]


@each("seed", [0, 1, 2**63 - 1, 2**64 - 1])
def test_the_noise_of_token_n_is_the_nth_output_of_its_seed_in_any_order(seed):
    stream = splitmix64(seed)
    outputs = [next(stream) for _ in range(40)]
    order = np.random.default_rng(0).permutation(40).astype(np.uint64)
    found = uniforms(np.full(40, seed, np.uint64), order)
    assert found.tolist() == [(outputs[int(n)] >> 11) / 2**53 for n in order]


def drawn_by_hand(logits, temperature, noise):
    """The id and its log-prob; and how far the noise is from where another id would begin."""
    scaled = np.array(logits, np.float64) / (temperature or 1.0)
    p = np.exp(scaled - scaled.max())
    p /= p.sum()
    if temperature == 0:
        return int(p.argmax()), float(np.log(p.max())), 1.0
    bounds = np.cumsum(p)
    token = int((bounds <= noise).sum())
    return token, float(np.log(p[token])), float(np.abs(bounds - noise).min())


@each("seed", range(5))
def test_a_row_is_sampled_by_its_own_temperature_whatever_its_neighbours_ask_for(seed):
    rng = np.random.default_rng(seed)
    num = 64
    logits = rng.normal(size=(num, 12)) * 3
    temperature = rng.choice([0.0, 0.5, 1.0, 1.0, 2.0], num).astype(np.float32)
    noise = rng.random(num)
    ids, logprobs = sample(torch.from_numpy(logits).float(), temperature, noise)
    for row in range(num):
        expected, logprob, margin = drawn_by_hand(logits[row], temperature[row], noise[row])
        if margin > 1e-5:
            assert ids[row] == expected
            assert logprobs[row].item() == pytest.approx(logprob, abs=1e-4)


def test_a_large_vocabulary_is_summed_up_without_rounding_tokens_into_their_neighbours():
    num_ids = 300_007
    expected = np.array([7, 100_003, 150_001, 222_222, 250_007, 280_001, 299_999, 300_006])
    noise = (expected + 0.003) / num_ids
    logits = torch.zeros(1, num_ids).expand(len(expected), num_ids)
    ones = np.ones(len(expected), np.float32)
    assert sample(logits, ones, noise)[0].tolist() == expected.tolist()


def test_the_largest_noise_there_is_draws_the_last_token_that_has_any_probability():
    logits = torch.tensor([[0.0, 0.0, -float("inf")]])
    one = np.ones(1, np.float32)
    assert sample(logits, one, np.array([1 - 2.0**-53]))[0].tolist() == [1]
    assert sample(logits, one, np.array([0.0]))[0].tolist() == [0]


def _request(prompt: int, most: int) -> Request:
    ids = list(range(prompt))
    return Request(dialogue="d", prompt_ids=ids, messages=(), max_new_tokens=most, noise_seed=7, temperature=0.0)


def _logits(*likely: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(likely), 10).float() * 5


def test_a_turn_keeps_its_tokens_while_the_table_grows_and_ends_at_a_stop_token_or_at_its_limit():
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
    table, slots = TurnTable(stop_ids=[3]), np.array([0, 1, 2])
    table.begin(slots, [_request(2, most) for most in (1, 9, 9)])
    table.sample(slots, _logits(4, 3, 4))
    assert table.over(slots).tolist() == [True, True, False]


IDS = st.lists(st.integers(0, 2), max_size=6).map(tuple)


@given(IDS, IDS)
def test_ids_are_alike_up_to_the_first_that_differs(one, other):
    num = num_alike(one, other)
    assert one[:num] == other[:num]
    assert len(one) == num or len(other) == num or one[num] != other[num]


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | IDS), max_size=20), IDS)
def test_a_slot_with_the_longest_common_beginning_is_found(events, ids):
    openings, held = Openings(), {}
    for slot, opening in events:
        if opening is None:
            openings.drop(slot)
            held.pop(slot, None)
        else:
            openings.put(slot, opening)
            held[slot] = opening
    slot, num = openings.longest(ids)
    assert num == max((num_alike(opening, ids) for opening in held.values()), default=0)
    assert num == 0 or num_alike(held[slot], ids) == num
