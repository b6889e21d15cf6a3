"""With rollouts ahead, too, a run that was killed or stopped goes on as if nothing had happened."""

import json
import os
import signal
import threading
from concurrent.futures import Future

import pytest
import torch

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.engines.self_test import Gap, SelfTest
from cod_lightning.ranks import rank
from cod_lightning.rollout.ahead import RolloutAhead
from cod_lightning.training.packs import TrainingPacks
from tests.forked_fit import EVERY, NUM_UPDATES, assert_the_same, checkpoint, fit, in_rollout, in_update, metrics, said
from tests.test_ranks import rows, run, weights
from tests.test_resume import draws, killed_after, noting_draws, send
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


def killed_and_resumed(folder, *more, updates=(1, 3)):
    for update in updates:
        assert fit(folder, *more, *EVERY, "--ckpt_path", "auto", before=killed_after(update)) == -signal.SIGKILL
        assert checkpoint(folder)["global_step"] == update
    assert fit(folder, *more, *EVERY, "--ckpt_path", "last") == 0, said(folder)


def test_killed_after_some_updates_a_run_with_rollouts_ahead_goes_on_bit_for_bit(whole, tmp_path):
    killed_and_resumed(tmp_path / "run", *AHEAD)
    assert_the_same(tmp_path / "run", whole)


def test_killed_after_some_updates_a_run_with_two_rollouts_ahead_goes_on_bit_for_bit(tmp_path):
    more = ("--data.max_staleness", "2", "source=Revisits", "method=grpo")
    assert fit(tmp_path / "whole", *more) == 0, said(tmp_path / "whole")
    assert staleness(tmp_path / "whole") == [0] * 2 + [1] * 2 + [2] * 4
    assert max(float(row["source/revisits"] or 0) for row in metrics(tmp_path / "whole")) > 0
    killed_and_resumed(tmp_path / "run", *more, updates=(3,))
    assert_the_same(tmp_path / "run", tmp_path / "whole")


def test_killed_after_some_updates_a_run_with_a_buffer_goes_on_bit_for_bit(tmp_path):
    buffer = {
        "class_path": "cod_lightning.training.played.PriorityBuffer",
        "init_args": {"sigma": 4.0, "rollouts_per_sync": 2, "rollouts_begun": 3},
    }
    more = ("--data.max_staleness", "2", "--data.buffer", json.dumps(buffer))
    assert fit(tmp_path / "whole", *more) == 0, said(tmp_path / "whole")
    assert max(staleness(tmp_path / "whole")) > 0
    killed_and_resumed(tmp_path / "run", *more)
    assert_the_same(tmp_path / "run", tmp_path / "whole")


def while_training_waits(act):
    """As soon as training has nothing to do but wait for a rollout, which is held back until then."""

    def before():
        begin, settle, waiting = RolloutAhead.begin, RolloutAhead.settle, threading.Event()

        def beginning(self, play, key=None):
            begin(self, lambda: play() if waiting.wait() else None, key)

        def settling(self, most=None):
            if not waiting.is_set() and any(not future.done() for future in self._waiting):
                act(self)
                waiting.set()
            settle(self, most)

        RolloutAhead.begin, RolloutAhead.settle = beginning, settling

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
        ahead._waiting[0] = Future()  # which is never over
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()

    folder = tmp_path / "run"
    assert fit(folder, *AHEAD, before=while_training_waits(twice)) == -signal.SIGTERM
    assert "SIGTERM: stopping after this update; once more stops at once" in said(folder)


@pytest.mark.parametrize("bound", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_two_ranks_with_rollouts_ahead_go_on_from_the_middle_of_one_as_if_nothing_had_happened(tmp_path, bound):
    more = ("--data.max_staleness", str(bound), "--data.suites", "null", "--trainer.max_epochs", "2")
    whole, folder = tmp_path / "whole", tmp_path / "run"
    run(whole, "ddp", *more)
    run(folder, "ddp", *more, killed=True)
    run(folder, "ddp", *more, "--ckpt_path", "last")
    found, expected = read_checkpoint(folder / "checkpoints" / "last.ckpt"), weights(whole)
    assert found.global_step == NUM_UPDATES
    assert all(torch.equal(found.weights()[name], tensor) for name, tensor in expected.items())
    assert rows(folder) == rows(whole)
    assert {float(row["train/staleness"]) for row in rows(whole)[2:] if row["train/staleness"]} == {1.0, float(bound)}


@pytest.mark.soak
def test_two_ranks_whose_weights_change_in_flight_train_on_the_same_packs_once_before_and_after_a_kill(
    tmp_path, monkeypatch
):
    server = FakeVLLM(window=4096)
    server.after_s = 0.01
    monkeypatch.setattr(SelfTest, "__call__", lambda *_, **__: Gap(0.0, 0, 0.0, 0.0, strict=True))
    monkeypatch.setattr(TrainingPacks, "observe", noting_packs(tmp_path / "packs"))
    monkeypatch.setattr(TrainingPacks, "learns", True)
    more = ("engine=VLLMServerEngine", "--data.engine.urls", f"[{server.url}]", "--data.max_staleness", "3")
    more += ("--data.suites", "null", "--trainer.max_epochs", "3")
    run(tmp_path / "run", "ddp", *more, killed=True)
    run(tmp_path / "run", "ddp", *more, "--ckpt_path", "last")
    server.die()
    found = rows(tmp_path / "run")
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
