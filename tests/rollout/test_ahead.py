"""Rollouts ahead of training, and what a signal leaves of them."""

import threading
import time

import pytest
import torch

from cod_lightning.rollout import ahead as ahead_module
from cod_lightning.rollout.ahead import RolloutAhead
from cod_lightning.rollout.deadlines import Liveness


@pytest.fixture
def liveness():
    return Liveness()


def going_on(liveness: Liveness) -> None:
    """As a rollout does whose lifecycles go on."""
    while True:
        liveness.at("lifecycle", "engine")
        time.sleep(0.01)


def test_a_signal_gives_up_what_is_under_way_and_what_is_to_come_and_says_which_in_their_order(liveness):
    ahead = RolloutAhead(liveness)
    ahead.begin(lambda: "over", "first")
    ahead.begin(lambda: going_on(liveness), "second")
    ahead.begin(lambda: going_on(liveness), "third")
    ahead.settle(1)
    ahead.stop()
    ahead.settle()
    assert ahead.over() == ["over"]
    assert ahead.given_up() == ["second", "third"]
    assert ahead.idle


def test_a_signal_waits_for_a_second_at_most_where_a_world_holds_up_the_thread(liveness, monkeypatch):
    assert ahead_module._STOP_S == 1.0
    monkeypatch.setattr(ahead_module, "_STOP_S", 0.2)
    ahead, over = RolloutAhead(liveness), threading.Event()
    ahead.begin(over.wait, "held up")
    begun = time.monotonic()
    threading.Timer(0.05, ahead.stop).start()
    ahead.settle()
    assert 0.2 < time.monotonic() - begun < 1.2
    assert ahead.given_up() == ["held up"]
    assert not ahead.idle
    over.set()


def test_a_run_that_is_over_leaves_the_next_one_in_the_same_process_alone(liveness):
    ahead = RolloutAhead(liveness)
    ahead.begin(lambda: going_on(liveness), "first")
    ahead.stop()
    ahead.give_up()
    assert not ahead.stopped
    ahead.begin(lambda: liveness.at("lifecycle", "engine"), "next")
    assert ahead.take() is None
    assert ahead.begun == []


def test_what_is_played_ahead_is_on_the_gpu_of_its_rank(liveness, monkeypatch):
    of_threads = threading.local()  # as CUDA keeps it; a thread begins with the first one
    of_threads.gpu = 1
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: getattr(of_threads, "gpu", 0))
    monkeypatch.setattr(torch.cuda, "set_device", lambda gpu: setattr(of_threads, "gpu", gpu))
    ahead = RolloutAhead(liveness)
    ahead.begin(torch.cuda.current_device)
    assert ahead.take() == 1
