"""The engine without a model."""

import asyncio
import random
from collections.abc import Callable, Sequence

import pytest

from cod_lightning.engines.base import Completion, Request, digest
from cod_lightning.engines.scripted import ScriptedEngine
from cod_lightning.errors import EngineFailure
from cod_lightning.types import Message, Role, StopReason
from tests.cases import each

STOP = 99


def encode(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def say(reply: Callable[[Sequence[Message], random.Random], str], *, most: int = 10, noise_seed: int = 0) -> Completion:
    request = Request(
        dialogue="d",
        prompt_ids=[7, 8],
        messages=(Message(Role.USER, "3 4"),),
        max_new_tokens=most,
        noise_seed=noise_seed,
    )
    return asyncio.run(ScriptedEngine(reply, encode, STOP).generate(request))


def test_the_reply_is_encoded_and_ends_with_the_stop_token():
    assert say(lambda messages, rng: messages[-1].content) == Completion(
        action_ids=(3, 4, STOP),
        behaviour_logprobs=(0.0, 0.0, 0.0),
        stop=StopReason.STOP,
        policy_version=-1,
        prompt_digest=digest([7, 8]),
    )


@each(
    ("reply", "most", "ids", "stop"),
    [
        ("3 4", 3, (3, 4, STOP), StopReason.STOP),
        ("3 4", 2, (3, 4), StopReason.LENGTH),
        ("3 4", 0, (), StopReason.LENGTH),
        ("", 9, (STOP,), StopReason.STOP),
        (f"3 {STOP} 4", 9, (3, STOP), StopReason.STOP),
    ],
)
def test_a_reply_that_does_not_fit_is_cut_without_a_stop_token_and_one_that_spells_it_ends_there(
    reply, most, ids, stop
):
    completion = say(lambda messages, rng: reply, most=most)
    assert (completion.action_ids, completion.stop) == (ids, stop)
    assert len(completion.behaviour_logprobs) == len(ids)


def test_the_same_noise_seed_gives_the_same_reply_whatever_was_asked_before():
    def dice(messages: Sequence[Message], rng: random.Random) -> str:
        return str(rng.randrange(90))

    first = [say(dice, noise_seed=seed).action_ids for seed in range(8)]
    again = [say(dice, noise_seed=seed).action_ids for seed in reversed(range(8))]
    assert first == again[::-1]
    assert len(set(first)) > 1


@each("reply", [lambda messages, rng: 1 / 0, lambda messages, rng: "no number"])
def test_a_reply_that_raises_or_has_no_ids_is_an_engine_failure_that_keeps_its_cause(reply):
    with pytest.raises(EngineFailure) as caught:
        say(reply)
    assert isinstance(caught.value.__cause__, (ZeroDivisionError, ValueError))
