"""A signal during a rollout that training waits for ends the run at once, and the run that goes on loses nothing by it."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from tests.forked_fit import SHORT, assert_the_same, checkpoint, fit, said, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

AT_ONCE_S = 10.0
"""Beside other tests; alone it is a second or two, and the world sleeps for a minute."""
LEVERS = {"faults": ["", "", "", "", "sleeps"], "every": 1000}
"""Training pack 5, in the second rollout, sleeps in a step."""


def world(*, blocking: bool = False, apart: bool = False) -> tuple[str, str]:
    found = {"class_path": "tests.faulty_worlds.FaultyLevers", "init_args": LEVERS | {"blocking": blocking}}
    if apart:
        found = {"class_path": "cod_lightning.envs.process_world.ProcessWorld", "init_args": {"world": found}}
    return "--data.env", json.dumps(found)


WORLDS = {"in this thread": world(), "in a thread": world(blocking=True), "in a process": world(apart=True)}


def slept(folder: Path):
    """Where the world notes that it slept, or that it need not."""
    file = folder.with_suffix(".slept")

    def before() -> None:
        os.environ["SLEPT"] = str(file)

    return file, before


def stopped_asleep(folder: Path, *more: str) -> float:
    """Seconds from a SIGTERM, which comes while the world sleeps, to the end of the run."""
    file, before = slept(folder)
    child = start(folder, *SHORT, *more, before=before)
    while not file.exists():
        time.sleep(0.05)
    time.sleep(0.5)
    begun = time.monotonic()
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 143, said(folder)
    print(f"{more}: {(seconds := time.monotonic() - begun):.1f} s")
    return seconds


def went_on(folder: Path, *more: str) -> None:
    assert fit(folder, *SHORT, *more, "--ckpt_path", "auto", before=slept(folder)[1]) == 0, said(folder)


def assert_nearly_the_same(one: Path, other: Path) -> None:
    """The same weights but for rounding: which turns share a batch follows the clock where worlds are waited for."""
    first, second = checkpoint(one), checkpoint(other)
    assert first["global_step"] == second["global_step"] == 4
    for name, tensor in second["state_dict"].items():
        assert torch.allclose(first["state_dict"][name], tensor, atol=1e-4), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run whose world does not sleep; wherever the world is, its episodes are the same."""
    folder = tmp_path_factory.mktemp("run") / "whole"
    slept(folder)[0].touch()
    went_on(folder, *WORLDS["in this thread"])
    return folder


@pytest.mark.parametrize("where", WORLDS)
def test_a_signal_is_heard_while_a_world_sleeps_and_the_run_goes_on_as_if_there_had_been_none(where, whole, tmp_path):
    more, folder = WORLDS[where], tmp_path / "run"
    assert stopped_asleep(folder, *more) < AT_ONCE_S, said(folder)
    assert checkpoint(folder)["global_step"] == 2
    went_on(folder, *more)
    if where == "in this thread":
        assert_the_same(folder, whole, num_updates=4)
    else:
        assert_nearly_the_same(folder, whole)
