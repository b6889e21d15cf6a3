"""The penalty of long responses: its ramp, on whom it falls, and which bounds are refused."""

import asyncio

from msgspec import structs

from cod_lightning.methods.overlong import OverlongReward
from cod_lightning.rewards.base import rewards_of, scored
from cod_lightning.types import EpisodeKind, Task
from tests.cases import each
from tests.records import solve, turn

TASK = Task(id="t", seed=0, spec=None)


@each(("longest", "expected"), [(1, 0.0), (10, 0.0), (20, -0.25), (30, -0.5), (500, -0.5)])
@each("reward", [0.0, 1.0])
def test_the_longest_response_of_any_episode_pays_for_its_length(longest, expected, reward):
    turns = tuple(turn(logprobs=(-1.0,) * tokens) for tokens in (5, longest))
    episode = structs.replace(solve(0, bool(reward)), turns=turns)
    rewards = rewards_of({"long": OverlongReward(10, 30, penalty=0.5)})
    assert asyncio.run(scored(episode, TASK, rewards)).parts == {"world": reward, "long": expected}


def test_an_episode_without_a_turn_pays_nothing_and_every_kind_may_pay():
    part = OverlongReward(10, 30)
    assert asyncio.run(part(structs.replace(solve(0, False), turns=()), TASK)) == 0.0
    assert part.kinds == frozenset(EpisodeKind)
