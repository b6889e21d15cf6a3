"""Planted faults: the run ends normally, and each is counted under its name, once."""

import time

import pytest

from cod_lightning.rollout.deadlines import EXIT_STALLED
from examples.studies.robustness.faults import play_through_an_outage
from tests.forked_fit import EVERY, SHORT, assert_the_same, fit, said

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore::UserWarning")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hangs", "phase"), [("load", "building environment, data and policy"), ("train", "choosing training packs")]
)
def test_an_environment_that_hangs_in_this_process_ends_the_run_and_its_phase_is_named(hangs, phase, tmp_path):
    folder = tmp_path / "run"
    world = ("--data.env", "tests.stalling_engine.HangingLevers", "--data.env.hangs", hangs)
    begun = time.monotonic()
    assert fit(folder, *world, "--data.deadlines.stall_s", "2") == EXIT_STALLED, said(folder)
    assert time.monotonic() - begun < 30
    report = (folder / "stalled.txt").read_text()
    assert f"nothing has moved for 2 s in {phase} (data.deadlines.stall_s)" in report
    assert "in decoding_hangs" in report


@pytest.mark.slow
def test_an_engine_that_hangs_in_this_process_ends_the_run_with_code_70_and_it_is_resumed_exactly(
    tmp_path, monkeypatch
):
    folder, whole = tmp_path / "run", tmp_path / "whole"
    monkeypatch.setenv("STALLED_NOTE", str(tmp_path / "note"))
    stalls = (*EVERY, *SHORT, "--data.engine", "tests.stalling_engine.StallingEngine", "--data.deadlines.stall_s", "3")
    assert fit(folder, *stalls) == 70, said(folder)
    report = (folder / "stalled.txt").read_text()
    assert "nothing has moved for 3 s in the rollout 'train'" in report
    assert "in decoding_hangs" in report
    assert "/train/" in report
    assert fit(folder, *stalls, "--ckpt_path", "last") == 0, said(folder)
    assert fit(whole, *stalls) == 0, said(whole)
    assert_the_same(folder, whole, num_updates=4)


@pytest.mark.slow
def test_a_hundred_lifecycles_at_a_server_that_dies_and_comes_back(tmp_path):
    found = play_through_an_outage(tmp_path, 100, max_retries=0)
    assert found["counted"]["EndpointFailure"] >= 30
