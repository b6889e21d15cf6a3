"""Deadlines, completions that cannot be, and what a rollout says when too much fails."""

import asyncio
import time

import pytest
from msgspec import structs

from cod_lightning.errors import TooManyFailures
from cod_lightning.rollout.deadlines import Deadlines, Liveness
from cod_lightning.rollout.stats import RolloutStats, count_faults, stop_if_too_many
from cod_lightning.types import EpisodeStatus
from tests.cases import each
from tests.stubs import FunctionEngine
from tests.word_play import CHAT, SAY_W1, play


class HangingEngine(FunctionEngine):
    """Never answers some dialogues; remembers who was cancelled."""

    def __init__(self, hangs):
        super().__init__(lambda _: SAY_W1)
        self.hangs, self.cancelled = hangs, []

    async def generate(self, request):
        if self.hangs(request.dialogue):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.cancelled.append(request.dialogue)
                raise
        return await super().generate(request)


def live(engine, world=None, deadlines=Deadlines(), num_siblings=3, num_tasks=2):  # noqa: B008
    begun, liveness = time.perf_counter(), Liveness()
    more = {"deadlines": deadlines, "liveness": liveness}
    (group,) = play(engine, world, num_siblings=num_siblings, num_tasks=num_tasks, **more)
    assert time.perf_counter() - begun < 5
    assert liveness.lines() == []
    return group


def faults(group):
    return [[e.fault for e in life.episodes if e.status is EpisodeStatus.FAILED] for life in group.lifecycles]


@pytest.mark.slow
@each(
    ("deadlines", "fault"),
    [
        (Deadlines(turn_s=0.2), "TurnTimeout"),
        (Deadlines(episode_s=0.2), "EpisodeTimeout"),
        (Deadlines(turn_s=30, episode_s=0.2), "EpisodeTimeout"),
    ],
)
def test_an_engine_that_hangs_costs_the_lifecycle_that_waits_and_gets_its_place_back(deadlines, fault):
    """Sibling 0 is well; 1, 2 and 3 wait in their first, second and third episode."""
    hung = [f"#{episode + 1}.{episode}" for episode in range(3)]
    engine = HangingEngine(lambda dialogue: dialogue.endswith(tuple(hung)))
    group = live(engine, deadlines=deadlines, num_siblings=5)
    assert faults(group) == [[], [fault], [fault], [fault], []]
    for episode, life in enumerate(group.lifecycles[1:4]):
        assert [e.reward is None for e in life.episodes] == [e >= episode for e in range(3)]
    assert sorted(engine.cancelled) == [f"{group.pack.id}{end}" for end in hung]
    assert set(engine.cancelled) <= set(engine.released)


def test_turns_before_the_deadline_are_kept():
    engine = HangingEngine(lambda dialogue: len(engine.prompts) == 2)
    group = live(engine, deadlines=Deadlines(episode_s=0.2), num_siblings=1)
    assert len(group.lifecycles[0].episodes[0].turns) == 2


# What a completion may be, bound by bound: test_completions.py.
GARBAGE = {
    "no tokens": {"action_ids": (), "behaviour_logprobs": ()},
    "5 tokens where 4": {"action_ids": (5, 6, 7, 8, 2), "behaviour_logprobs": (-1.0,) * 5},
    "other ids than those of the prompt": {"prompt_digest": 1},
    "a NoneType instead of a Completion": None,
    "a bytes instead of a Completion": b"\xff",
}


class GarbageEngine(FunctionEngine):
    """Changes what sibling 1 gets."""

    def __init__(self, wrong):
        super().__init__(lambda _: SAY_W1)
        self.wrong = wrong

    async def generate(self, request):
        completion = await super().generate(request)
        if "#1." not in request.dialogue:
            return completion
        return self.wrong if not isinstance(self.wrong, dict) else structs.replace(completion, **self.wrong)


@each("complaint", GARBAGE)
def test_a_completion_that_cannot_be_costs_its_lifecycle_and_becomes_no_turn(complaint):
    group = live(GarbageEngine(GARBAGE[complaint]))
    assert faults(group) == [[], ["BadCompletion"], []]
    (failed,) = (e for e in group.lifecycles[1].episodes if e.error)
    assert complaint in failed.error
    assert failed.turns == ()


def test_a_model_may_have_more_ids_than_its_tokenizer():
    class Large(FunctionEngine):
        async def generate(self, request):
            return structs.replace(await super().generate(request), action_ids=(CHAT.num_ids, 2))

    for num_ids, failed in ((None, True), (CHAT.num_ids + 1, False)):
        (group,) = play(Large(lambda _: SAY_W1), num_tasks=1, num_ids=num_ids)
        assert group.lifecycles[0].failed == failed


def test_a_release_that_raises_costs_a_lifecycle_and_not_the_run():
    class Sticky(FunctionEngine):
        def release(self, dialogue):
            if dialogue.endswith(("#0.0", "#1.1")):
                raise ConnectionError("gone")

    group = live(Sticky(lambda _: SAY_W1))
    assert faults(group) == [["EngineFailure"], ["EngineFailure"], []]


def mixed_group():
    def fails(request):
        if "#1." in request.dialogue:
            raise ConnectionError("gone")
        return () if "#2." in request.dialogue else SAY_W1

    return live(FunctionEngine(fails), num_siblings=4)


def test_each_fault_is_counted_once_under_its_name_and_a_group_of_fewer_than_two_survivors_as_lost():
    counts = RolloutStats.of([mixed_group()], 1.0, 0).counts
    assert (counts["faults/BadCompletion"], counts["faults/EngineFailure"], counts["rollout/num_failed"]) == (1, 1, 2)
    assert counts["rollout/num_lost_groups"] == 0
    group = mixed_group()
    few = structs.replace(group, lifecycles=group.lifecycles[:3])
    assert RolloutStats.of([few], 1.0, 0).counts["rollout/num_lost_groups"] == 1
    assert count_faults([few]) == {"BadCompletion": 1, "EngineFailure": 1}


def test_too_many_failures_stop_with_each_fault_by_number_and_an_example():
    group = mixed_group()
    stop_if_too_many("train", [group], 0.5)
    with pytest.raises(TooManyFailures) as caught:
        stop_if_too_many("train", [group], 0.49)
    message = str(caught.value)
    assert message.startswith(
        "2 of 4 lifecycles of the rollout 'train' failed, more than data.max_failed_fraction=0.49"
    )
    assert (
        f"1 EngineFailure, for example {group.pack.id}#1, solve 0: FunctionEngine raised ConnectionError: gone"
        in message
    )
    assert f"1 BadCompletion, for example {group.pack.id}#2, solve 0: no tokens" in message
