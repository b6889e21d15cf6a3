"""The penalty for long answers, as its definition has it."""

import asyncio

import pytest

from cod_lightning.methods.length import LengthReward
from cod_lightning.rewards.base import rewards_of, scored
from cod_lightning.types import Task
from tests import records


def score(part, reward, lengths):
    turns = tuple(records.turn("", (0.0,) * length) for length in lengths)
    episode = records.episode(reward=reward, success=True, turns=turns)
    return asyncio.run(scored(episode, Task(id="0", seed=1, spec=None), rewards_of({"length": part}), None)).reward


def expected(reward, lengths, c, zero, full, most):
    if reward <= 0:
        return reward
    response = 0.0
    for length in lengths:
        response += min(1.0, max(0.0, (length - zero) / (full - zero))) / len(lengths)
    return max(0.0, reward - c * (response + len(lengths) / most))


def test_it_is_that_of_the_definition():
    for reward in (0.0, 0.05, 1.0):
        for lengths in ((1,), (10, 20, 30), (500, 2, 15)):
            for c in (0.1, 2.0):
                part = LengthReward(c, zero_tokens=10, full_tokens=30, max_turns=4)
                assert score(part, reward, lengths) == pytest.approx(expected(reward, lengths, c, 10, 30, 4))
    assert score(LengthReward(0.25, max_turns=1), 1.0, (1,)) == 0.75, "one turn of one"
