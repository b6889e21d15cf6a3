"""The command line with a replay: a run goes on from a kill in the middle of a rollout as if nothing had happened."""

import signal

import pytest

from tests.forked_fit import EVERY, assert_the_same, checkpoint, fit, metrics, said
from tests.test_ranks import rows, run, weights
from tests.test_resume import killed_after

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

IMITATION = ("replay=SelfImitation", "--data.replay.init_args.warmup_rollouts", "2")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(IMITATION, marks=pytest.mark.soak),
        ("replay=SignalReplay", "--data.max_staleness", "1", "--data.group_size", "2"),
    ],
    ids=str,
)
def test_killed_after_some_updates_a_run_with_a_replay_goes_on_bit_for_bit(tmp_path, more):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert fit(whole, *more) == 0, said(whole)
    assert fit(folder, *more, *EVERY, "--ckpt_path", "auto", before=killed_after(3)) == -signal.SIGKILL
    assert checkpoint(folder)["global_step"] == 3
    assert fit(folder, *more, *EVERY, "--ckpt_path", "last") == 0, said(folder)
    assert_the_same(folder, whole)
    logged = [float(row["replay/stored_episodes"]) for row in metrics(whole) if row["replay/stored_episodes"]]
    assert logged[0] > 0
    assert max(float(row["replay/replayed_tokens"] or 0) for row in metrics(whole)) > 0


@pytest.mark.soak  # test_signals.py has two ranks with a replay among other parts
def test_two_ranks_with_a_replay_go_on_from_the_middle_of_a_rollout_as_if_nothing_had_happened(tmp_path):
    more = (*IMITATION, "--data.suites", "null", "--trainer.max_epochs", "2")
    whole, folder = tmp_path / "whole", tmp_path / "run"
    run(whole, "ddp", *more)
    run(folder, "ddp", *more, killed=True)
    run(folder, "ddp", *more, "--ckpt_path", "last")
    assert all((weights(folder)[name] == tensor).all() for name, tensor in weights(whole).items())
    assert rows(folder) == rows(whole)
    assert max(float(row.get("replay/replayed_tokens") or 0) for row in rows(whole)) > 0
