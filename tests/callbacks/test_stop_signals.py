"""Signals, and how ranks agree on them."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

from cod_lightning.callbacks.stop_signals import StopSignals, handlers_kept
from cod_lightning.errors import Stopped
from cod_lightning.ranks import gathered
from tests.cases import each
from tests.forked import on_two_ranks
from tests.played_run import PlayedData, PlayedModule, trainer


def watching(world_size: int) -> StopSignals:
    stop = StopSignals()
    environment = SimpleNamespace(cluster_environment=None)
    fake = SimpleNamespace(world_size=world_size, _accelerator_connector=environment)
    stop.setup(fake, None, "fit")  # pyright: ignore[reportArgumentType]
    stop._interruptible = False  # as from the first update on
    return stop


def test_two_ranks_stop_at_the_same_update_whichever_was_told(tmp_path):
    def act(rank: int) -> str:
        stop = watching(2)
        for update in range(10):
            if rank == 1 and update == 6:
                os.kill(os.getpid(), signal.SIGTERM)  # between two agreements: noted, not acted upon
            try:
                stop.stop_if_asked()
            except Stopped as stopped:
                return f"update {update}, code {stopped.code}"
        return "never"

    assert on_two_ranks(tmp_path, act) == ["update 6, code 143"] * 2


def test_a_rank_that_gives_up_its_rollout_waits_for_the_other_which_stops_too(tmp_path):
    def act(rank: int) -> str:
        stop, done = watching(2), []
        try:
            for rollout in range(3):
                with stop.interruptible():
                    if rank == 0 and rollout == 1:
                        os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.05)
                    done.append(rollout)
                done.append(gathered(rank))  # what comes after a rollout is not reached by either
        except Stopped as stopped:
            return f"{done} {stopped.code}"
        return "never"

    assert on_two_ranks(tmp_path, act) == ["[0, [0, 1]] 130", "[0, [0, 1], 1] 130"]


@each("signalled", [[0], [1], [0, 1]])
def test_a_signal_while_ranks_agree_to_begin_a_rollout_is_not_lost(signalled, tmp_path, monkeypatch):
    def act(rank: int) -> str:
        def told_meanwhile(received: int) -> list[int]:
            found = gathered(received)
            if rank in signalled and not stop.received:
                os.kill(os.getpid(), signal.SIGTERM)  # as where it came while this rank waited for the other
            return found

        monkeypatch.setattr("cod_lightning.callbacks.stop_signals.gathered", told_meanwhile)
        stop, done = watching(2), []
        try:
            with stop.interruptible():
                done.append("played")
            done.append("went on")
        except Stopped as stopped:
            return f"{done} {stopped.code}"
        return "never"

    expected = ["[] 143" if rank in signalled else "['played'] 143" for rank in range(2)]
    assert on_two_ranks(tmp_path, act) == expected


def test_a_rank_that_the_others_have_told_takes_its_own_first_signal_for_the_same(tmp_path):
    def act(rank: int) -> str:
        stop = watching(2)
        if rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Stopped):
            stop.stop_if_asked()
        time.sleep(0.15)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)  # would end it, were it the second
        return f"still there, {gathered(rank)}"

    assert on_two_ranks(tmp_path, act) == ["still there, [0, 1]"] * 2


def test_an_evaluation_is_given_up_at_once(tmp_path):
    class Terminated(PlayedData):
        def val_dataloader(self):
            os.kill(os.getpid(), signal.SIGTERM)
            return super().val_dataloader()

    with handlers_kept(), pytest.raises(Stopped) as stopped:
        trainer(tmp_path, [StopSignals()]).validate(PlayedModule(), Terminated())
    assert stopped.value.code == 143


def test_handlers_of_before_come_back():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with handlers_kept():
        watching(1)
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
