"""Planted faults: the run ends normally, and each is counted under its name, once. Minutes, so part of `.ci/run` only."""

import pytest

from examples.studies.robustness.faults import play_through_an_outage, train
from tests.forked_fit import EVERY, assert_the_same, fit, said

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore::UserWarning")]


def test_an_engine_that_hangs_in_this_process_ends_the_run_with_code_70_and_it_is_resumed_exactly(
    tmp_path, monkeypatch
):
    folder, whole = tmp_path / "run", tmp_path / "whole"
    monkeypatch.setenv("STALLED_NOTE", str(tmp_path / "note"))
    stalls = (*EVERY, "--data.engine", "tests.stalling_engine.StallingEngine", "--data.deadlines.stall_s", "3")
    assert fit(folder, *stalls) == 70, said(folder)
    report = (folder / "stalled.txt").read_text()
    assert "nothing has moved for 3 s in the rollout 'train'" in report
    assert "in decoding_hangs" in report
    assert "/train/" in report
    assert fit(folder, *stalls, "--ckpt_path", "last") == 0, said(folder)
    assert fit(whole, *stalls) == 0, said(whole)
    assert_the_same(folder, whole)


@pytest.mark.soak
def test_a_training_with_a_hundred_of_each_fault_ends_normally_and_counts_each_once(tmp_path):
    found = train(tmp_path, rollouts=2, packs=63, updates=3, step_s=2.0, turn_s=8.0)
    assert min(found["planted"].values()) >= 100
    assert len(found["planted"]) == 6
    assert set(found["counted"]) == {"EnvironmentFailure", "WorldHung", "EngineFailure", "TurnTimeout", "BadCompletion"}


def test_a_hundred_lifecycles_at_a_server_that_dies_and_comes_back(tmp_path):
    found = play_through_an_outage(tmp_path, 100, max_retries=0)
    assert found["counted"]["EndpointFailure"] >= 30
