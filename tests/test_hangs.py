"""An environment that hangs in this process ends the run with code 70, whatever phase it hangs in."""

import time

import pytest

from cod_lightning.rollout.deadlines import EXIT_STALLED
from tests.forked_fit import fit, said


@pytest.mark.parametrize(
    ("hangs", "phase"),
    [
        pytest.param("load", "building environment, data and policy", marks=pytest.mark.slow),
        ("train", "choosing training packs"),
    ],
)
def test_a_phase_that_hangs_is_named_and_ends_the_run(hangs, phase, tmp_path):
    folder = tmp_path / "run"
    world = ("--data.env", "tests.stalling_engine.HangingLevers", "--data.env.hangs", hangs)
    begun = time.monotonic()
    assert fit(folder, *world, "--data.deadlines.stall_s", "2") == EXIT_STALLED, said(folder)
    assert time.monotonic() - begun < 30
    report = (folder / "stalled.txt").read_text()
    assert f"nothing has moved for 2 s in {phase} (data.deadlines.stall_s)" in report
    assert "in decoding_hangs" in report
