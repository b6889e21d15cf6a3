"""Groups ahead of training: which are under way together, and how they end."""

import asyncio
import threading
from contextlib import nullcontext

import pytest
import torch

from cod_lightning.rollout.ahead import GroupsAhead
from cod_lightning.rollout.deadlines import Liveness


@pytest.fixture
def ahead():
    return GroupsAhead(Liveness(), nullcontext)


def begin(ahead, *plays, **how):
    """The futures of groups that are played by these."""
    futures = [ahead.add(None) for _ in plays]
    ahead.play(list(zip(futures, plays, strict=True)), **how)
    return futures


@pytest.mark.parametrize("beside", [False, True])
def test_those_of_a_rollout_are_under_way_together_and_one_rollout_after_another_or_beside_it(ahead, beside):
    loops, there, over = [], [threading.Event() for _ in range(3)], threading.Event()

    def play(g):
        async def played():
            loops.append(asyncio.get_running_loop())
            there[g].set()
            while not over.is_set():
                await asyncio.sleep(0.01)
            return g

        return played

    begin(ahead, play(0), play(1), beside=beside)
    begin(ahead, play(2), beside=beside)
    assert all(one.wait(timeout=10) for one in there[:2])
    assert there[2].wait(timeout=10 if beside else 0.1) == beside
    over.set()
    assert ahead.take(ahead.begun[:2]) == [0, 1]
    assert ahead.take(ahead.begun) == [2]
    assert ahead.begun == []
    assert len(set(loops)) == (1 if beside else 2)


def test_what_ends_a_group_is_raised_where_it_is_taken_and_the_others_go_on(ahead):
    async def broken():
        raise ZeroDivisionError

    async def whole():
        return "whole"

    begin(ahead, broken, whole)
    ahead.settle()
    assert ahead.begun[1].future.result() == "whole"
    with pytest.raises(ZeroDivisionError):
        ahead.take(ahead.begun)


@pytest.mark.slow
def test_groups_that_are_given_up_leave_the_next_run_in_the_same_process_alone(ahead):
    under_way = threading.Event()

    async def waiting():
        under_way.set()
        await asyncio.sleep(60)

    async def quick():
        return "group"

    begin(ahead, waiting)
    begin(ahead, waiting)
    assert under_way.wait(timeout=10)
    ahead.give_up()
    begin(ahead, quick)
    assert ahead.take(ahead.begun) == ["group"]


def test_a_loop_that_cannot_begin_ends_the_run_where_its_groups_are_taken():
    def unwatched():
        raise OSError("too many open files")

    ahead = GroupsAhead(Liveness(), unwatched)
    for _ in range(2):
        (future,) = begin(ahead, lambda: None)
        with pytest.raises(OSError, match="too many open files"):
            future.result(timeout=5)


def test_the_seconds_of_waiting_are_counted_once(ahead):
    async def slow():
        await asyncio.sleep(0.1)

    begin(ahead, slow)
    ahead.take(ahead.begun)
    assert 0.03 < ahead.waited_s() < 5.0
    assert ahead.waited_s() == 0.0


def test_what_is_played_ahead_is_on_the_gpu_of_its_rank(ahead, monkeypatch):
    of_threads = threading.local()  # as CUDA keeps it; a thread begins with the first one
    of_threads.gpu = 1
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: getattr(of_threads, "gpu", 0))
    monkeypatch.setattr(torch.cuda, "set_device", lambda gpu: setattr(of_threads, "gpu", gpu))

    async def gpu():
        return torch.cuda.current_device()

    begin(ahead, gpu)
    assert ahead.take(ahead.begun) == [1]
