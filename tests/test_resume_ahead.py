"""With rollouts ahead, too, a run that was killed or stopped goes on as if nothing had happened."""

import os
import signal
import threading
from concurrent.futures import Future
from functools import partial

import pytest

from cod_lightning.engines.self_test import Gap, SelfTest
from cod_lightning.ranks import rank
from cod_lightning.rollout.ahead import Begun, GroupsAhead
from cod_lightning.training.packs import TrainingPacks
from tests.forked_fit import (
    assert_the_same,
    checkpoint,
    draws,
    fit,
    in_rollout,
    in_update,
    metrics,
    noting_draws,
    said,
    send,
)
from tests.test_ranks import run
from tests.vllm_server import FakeVLLM

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

AHEAD = ("--data.max_staleness", "1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert fit(folder, *AHEAD, before=noting_draws(folder)) == 0, said(folder)
    assert staleness(folder) == [0] * 2 + [1] * 6
    return folder


def staleness(folder):
    return [float(row["train/staleness"]) for row in metrics(folder) if row["train/staleness"]]


def while_training_waits(act):
    """As soon as training has nothing to do but wait for a rollout, which is held back until then."""

    def before():
        play, settle, waiting = GroupsAhead.play, GroupsAhead.settle, threading.Event()

        async def held_back(group):
            waiting.wait()
            return await group()

        def playing(self, plays, **how):
            play(self, [(future, partial(held_back, group)) for future, group in plays], **how)

        def settling(self, groups=None):
            if not waiting.is_set() and any(not one.future.done() for one in self.begun):
                act(self)
                waiting.set()
            settle(self, groups)

        GroupsAhead.play, GroupsAhead.settle = playing, settling

    return before


@pytest.mark.soak
def test_stopped_by_signals_a_run_with_rollouts_ahead_goes_on_bit_for_bit(whole, tmp_path):
    folder = tmp_path / "run"
    stop = send(signal.SIGTERM)
    stops = [
        (in_rollout("train", stop), 0),  # the first one, which nothing is trained beside: given up
        (in_update(1, stop), 1),
        (while_training_waits(lambda _: stop()), 4),
        (in_rollout("train", send(signal.SIGINT)), None),  # beside some update
        (in_update(7, stop), 7),
        (in_rollout("validation", stop), 8),
    ]
    for before, saved in stops:
        code = fit(folder, *AHEAD, "--ckpt_path", "auto", before=noting_draws(folder, before))
        assert code in (143, 130), said(folder)
        assert saved in (None, 0) or checkpoint(folder)["global_step"] == saved
    assert fit(folder, *AHEAD, "--ckpt_path", "auto", before=noting_draws(folder)) == 0, said(folder)
    assert_the_same(folder, whole)
    assert draws(folder) == draws(whole)


def test_a_second_signal_ends_at_once_a_run_that_waits_for_a_rollout(tmp_path):
    def twice(ahead):
        ahead.begun[0] = Begun(None, Future())  # which is never over
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()

    folder = tmp_path / "run"
    assert fit(folder, *AHEAD, before=while_training_waits(twice)) == -signal.SIGTERM
    assert "SIGTERM: stopping after this update; once more stops at once" in said(folder)


@pytest.mark.soak
def test_two_ranks_whose_weights_change_in_flight_train_on_the_same_packs_once_before_and_after_a_kill(
    tmp_path, monkeypatch
):
    server = FakeVLLM(window=4096)
    server.keeps_one_s = 3.0
    monkeypatch.setattr(SelfTest, "__call__", lambda *_, **__: Gap(0.0, 0, 0.0, 0.0, strict=True))
    monkeypatch.setattr(TrainingPacks, "observe", noting_packs(tmp_path / "packs"))
    monkeypatch.setattr(TrainingPacks, "learns", True)
    more = ("engine=VLLMServerEngine", "--data.engine.urls", f"[{server.url}]", "--data.max_staleness", "3")
    more += ("--data.suites", "null", "--trainer.max_epochs", "3")
    run(tmp_path / "run", "ddp", *more, killed=True)
    run(tmp_path / "run", "ddp", *more, "--ckpt_path", "last")
    server.die()
    found = metrics(tmp_path / "run")
    assert sum(float(row["rollout/num_interrupted_turns"] or 0) for row in found) > 0
    assert max(float(row["train/staleness"] or 0) for row in found) <= 3
    noted = [(tmp_path / f"packs{rank}").read_text().split() for rank in range(2)]
    assert noted[0] == noted[1]
    assert list(map(int, noted[0])) == list(range(24))


def noting_packs(file):
    """What each rank's source would be shown."""

    def observe(self, outcomes):
        with file.with_name(f"{file.name}{rank()}").open("a") as noted:
            noted.write("".join(f"{choice.index} " for choice in outcomes.choices))
        return {}

    return observe
