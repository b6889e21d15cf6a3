"""Cycles that a world leaves behind are collected during a rollout, and nothing is looked for where none are."""

import asyncio
import gc
import os
import signal
import time

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import Stopped
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import collected_by_growth, resident, run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Split
from tests.stubs import FunctionEngine

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


@pytest.fixture(autouse=True)
def _fresh():
    Loop.alive = Loop.most = 0
    yield
    gc.collect()


@pytest.mark.slow
def test_a_world_that_leaves_cycles_holds_a_fraction_of_them():
    world, mechanism = LeakyLevers(protocol="compact"), HintContext(protocol="compact")
    chat = Chat(TinyPolicy().tokenizer(world.words() + mechanism.words()))
    word = chat.encode(world.words()[0])[0]
    sampler = Sampler(
        engine=FunctionEngine(lambda request: (word, chat.end_of_turn)), chat=chat, window=400, max_new_tokens=4
    )
    packs = [world.sample_pack(split=Split.TRAIN, index=i, num_tasks=3) for i in range(16)]
    before = resident()
    groups = run_groups(packs, 2, Setting(env=world, mechanism=mechanism, sampler=sampler))
    made = 10 * sum(len(e.turns) for g in groups for life in g.lifecycles for e in life.solves)
    assert made >= 900
    assert Loop.most < made / 2
    assert Loop.most * SIZE < 4 * max(2**27, before / 4)
    assert gc.isenabled()


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
    world, mechanism = WanderingLevers(protocol="compact"), HintContext(protocol="compact")
    chat = Chat(TinyPolicy().tokenizer(world.words() + mechanism.words()))
    word = chat.encode(world.words()[0])[0]
    sampler = Sampler(
        engine=FunctionEngine(lambda request: (word, chat.end_of_turn)), chat=chat, window=400, max_new_tokens=4
    )
    run_groups(
        [world.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)],
        1,
        Setting(env=world, mechanism=mechanism, sampler=sampler),
    )
    assert os.getcwd() == str(tmp_path)


class WaitingEngine(FunctionEngine):
    async def generate(self, request):
        await asyncio.sleep(0.001)
        return await super().generate(request)


class SignalledLevers(Levers):
    """A signal comes during the twentieth pull of all."""

    pulls = 0

    def step(self, action):
        SignalledLevers.pulls += 1
        if SignalledLevers.pulls == 20:
            raise Stopped(signal.SIGINT)
        return super().step(action)


def test_a_signal_within_a_lifecycle_ends_a_rollout_without_a_word(caplog, capsys):
    world, mechanism = SignalledLevers(protocol="compact"), HintContext(protocol="compact")
    chat = Chat(TinyPolicy().tokenizer(world.words() + mechanism.words()))
    word = chat.encode(world.words()[0])[0]
    engine = WaitingEngine(lambda request: (word, chat.end_of_turn))
    sampler = Sampler(engine=engine, chat=chat, window=400, max_new_tokens=4)
    packs = [world.sample_pack(split=Split.TRAIN, index=i, num_tasks=3) for i in range(4)]
    with pytest.raises(Stopped):
        run_groups(packs, 4, Setting(env=world, mechanism=mechanism, sampler=sampler))
    gc.collect()
    assert not caplog.records
    assert not capsys.readouterr().err
