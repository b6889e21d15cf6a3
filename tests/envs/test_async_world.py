"""Worlds whose calls are awaited: as many at a time as there are lifecycles, closed like the others, and no danger to the run."""

import asyncio
import copy
import sys
import threading

from cod_lightning.envs.async_world import AsyncWorld
from cod_lightning.envs.mixture import Mixture
from cod_lightning.rollout.deadlines import Deadlines
from cod_lightning.types import EpisodeStatus, Split
from tests.cases import each
from tests.stubs import FunctionEngine, WordWorld
from tests.word_play import SAY_W1, play


class Container(AsyncWorld, WordWorld):
    """Shows words after a wait; notes what happens to it in one list for all its copies."""

    def __init__(self, name="words", fault=None, leaving_s=0.0):
        WordWorld.__init__(self, max_turns=2)
        self.name, self.fault, self.leaving_s, self.noted = name, fault, leaving_s, Shared()

    async def open(self, task):
        await asyncio.sleep(0.001)
        return WordWorld.reset(self, options={"task": task})[0]

    async def act(self, action):
        if self.fault is not None:
            await self.fault(self)
        return WordWorld.step(self, action)

    async def leave(self):
        await asyncio.sleep(self.leaving_s)
        self.noted.append("left")


class Shared(list):
    """Not copied with its world."""

    def __deepcopy__(self, memo):
        return self


def played(world, **more):
    return play(FunctionEngine(lambda _: SAY_W1), world, num_tasks=1, **more)[0].lifecycles


def test_episodes_and_their_rewards_are_those_of_the_same_world_in_this_thread():
    assert played(Container(), num_siblings=3) == played(WordWorld(max_turns=2), num_siblings=3)


def test_three_hundred_wait_at_a_time_without_a_thread_each_and_leave_before_the_rollout_is_over():
    inside, everyone, threads = [], asyncio.Event(), []

    async def wait_for_all(world):
        inside.append(world)
        threads.append(threading.active_count())
        if len(inside) == 300:
            everyone.set()
        await everyone.wait()

    world = Container(fault=wait_for_all, leaving_s=0.01)
    lives = played(world, num_siblings=300)
    assert [life.failed for life in lives] == [False] * 300
    assert max(threads) < 30
    assert len(world.noted) == 300


async def raise_exit(world):
    raise SystemExit(3)


async def cancel_itself(world):
    raise asyncio.CancelledError


async def raise_os_error(world):
    raise OSError("gone")


@each("fault", [raise_exit, cancel_itself, raise_os_error])
def test_whatever_one_raises_costs_its_lifecycle_and_it_is_left(fault):
    async def of_one(world):
        if len(world.noted) == 0:
            world.noted.append("struck")
            await fault(world)

    world = Container(fault=of_one)
    lives = played(world, num_siblings=3)
    assert sorted(life.episodes[0].fault for life in lives) == ["", "", "EnvironmentFailure"]
    assert world.noted.count("left") == 3


@each("left", [sys.exit, lambda: asyncio.get_running_loop().stop()])
def test_what_one_leaves_behind_does_not_end_the_loop_of_all(left):
    async def leave_behind(world):
        asyncio.get_running_loop().call_soon(left)

    lives = played(Container(fault=leave_behind), num_siblings=3, deadlines=Deadlines(episode_s=5.0))
    assert [life.failed for life in lives] == [False] * 3


def test_a_deadline_cancels_the_call_under_way_and_the_world_is_left_and_one_that_does_not_leave_costs_its_lifecycle():
    async def forever(world):
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            world.noted.append("cancelled")
            raise

    world = Container(fault=forever)
    (life,) = played(world, deadlines=Deadlines(episode_s=0.05))
    assert life.episodes[0].fault == "EpisodeTimeout"
    assert world.noted == ["cancelled", "left"]
    (life,) = played(Container(leaving_s=600), deadlines=Deadlines(episode_s=0.05))
    assert life.episodes[0].status is EpisodeStatus.FAILED
    assert life.episodes[0].error == "EnvironmentFailure: not closed after data.deadlines.episode_s=0.05 s"


def test_outside_a_loop_it_waits_so_that_checks_and_players_use_it_as_any_other():
    world = Container()
    twin, plain = copy.deepcopy(world), WordWorld(max_turns=2)
    task = plain.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks[0]
    assert twin.reset(options={"task": task}) == plain.reset(options={"task": task})
    assert [twin.step("w1"), twin.step("w2")] == [plain.step("w1"), plain.step("w2")]
    assert twin.close() is None
    assert world.noted == ["left"]


def test_a_mixture_awaits_asynchronous_worlds():
    worlds = {"one": Container("one"), "other": Container("other")}
    lives = played(Mixture(worlds), num_siblings=2)
    assert [life.failed for life in lives] == [False, False]
    assert [len(world.noted) for world in worlds.values()] == [2, 2]
