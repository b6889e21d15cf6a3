"""Cycles that a world leaves behind are collected during a rollout, and nothing is looked for where none are."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ReaderEnded, Stopped
from cod_lightning.models import TinyPolicy
from cod_lightning.process_memory import resident
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.group import collected_by_growth
from tests.cases import each
from tests.stubs import FunctionEngine
from tests.word_play import play

SIZE = 2**22


class Loop:
    """A cycle of 4 MiB that counts itself."""

    alive, most = 0, 0

    def __init__(self) -> None:
        self.itself, self.weight = self, b"x" * SIZE
        Loop.alive += 1
        Loop.most = max(Loop.most, Loop.alive)

    def __del__(self) -> None:
        Loop.alive -= 1


class LeakyLevers(Levers):
    """Levers that leave ten cycles with every pull."""

    def step(self, action):
        for _ in range(10):
            Loop()
            time.sleep(0.001)
        return super().step(action)


def pulled(world, engine=FunctionEngine, **more):
    """Packs in which one lever is pulled again and again."""
    mechanism = HintContext(protocol="compact")
    words = beside(world, Vocabulary).words()
    chat = Chat(TinyPolicy().tokenizer(words + beside(mechanism, Words).words()))
    says = (chat.encode(words[0])[0], chat.end_of_turn)
    return play(engine(lambda _: says), world, mechanism, chat=chat, window=400, **more)


@pytest.fixture
def _fresh():
    Loop.alive = Loop.most = 0
    yield
    gc.collect()


@pytest.mark.soak
@pytest.mark.usefixtures("_fresh")
def test_a_world_that_leaves_cycles_holds_a_fraction_of_them():
    before = resident()
    groups = pulled(LeakyLevers(protocol="compact"), num_packs=16, num_siblings=2)
    made = 10 * sum(len(e.turns) for g in groups for life in g.lifecycles for e in life.solves)
    assert made >= 900
    assert Loop.most < made / 2
    assert Loop.most * SIZE < 4 * max(2**27, before / 4)
    assert gc.isenabled()


LEAKING = """
import os, resource, time
from cod_lightning.rollout.group import collected_by_growth
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
class Loop:
    def __init__(self): self.itself, self.file = self, open("/dev/null")
with collected_by_growth():
    for burst in range(4):
        try:
            for _ in range(150 if burst % 2 else 300): Loop()
        except OSError: pass
        time.sleep(0.2)
    print(len(os.listdir("/proc/self/fd")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not say which files are open")
def test_files_that_an_environment_leaves_in_cycles_are_closed_even_after_none_is_left():
    done = subprocess.run([sys.executable, "-c", LEAKING], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200, "of 256 that may be open: those of the last burst at most"
    assert not done.stderr


def test_a_rollout_that_does_not_grow_is_never_looked_through():
    with collected_by_growth():
        before = sum(generation["collections"] for generation in gc.get_stats())
        for _ in range(5):
            _ = [[i] for i in range(100_000)]
            time.sleep(0.05)
        assert sum(generation["collections"] for generation in gc.get_stats()) == before


def test_who_has_switched_the_collector_off_keeps_it_off():
    gc.disable()
    try:
        with collected_by_growth():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


class WanderingLevers(Levers):
    """Levers that change the working directory of the process."""

    def step(self, action):
        os.chdir("/")
        return super().step(action)


def test_a_world_that_goes_elsewhere_takes_no_file_of_the_run_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pulled(WanderingLevers(protocol="compact"), num_tasks=2)
    assert os.getcwd() == str(tmp_path)


class WaitingEngine(FunctionEngine):
    async def generate(self, request):
        await asyncio.sleep(0.001)
        return await super().generate(request)


class SignalledLevers(Levers):
    """A signal comes during the twentieth pull of all, or the output's reader ends."""

    pulls = 0
    raises: SystemExit

    def step(self, action):
        SignalledLevers.pulls += 1
        if SignalledLevers.pulls == 20:
            raise SignalledLevers.raises
        return super().step(action)


@each("ending", [Stopped(signal.SIGINT), ReaderEnded(141)])
def test_a_signal_within_a_lifecycle_ends_a_rollout_without_a_word(ending, caplog, capsys):
    SignalledLevers.pulls, SignalledLevers.raises = 0, ending
    with pytest.raises(type(ending)):
        pulled(SignalledLevers(protocol="compact"), WaitingEngine, num_packs=4, num_siblings=4)
    gc.collect()
    assert not caplog.records
    assert not capsys.readouterr().err
