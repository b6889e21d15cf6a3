"""A deployed agent whose environment, engine or reward hangs: each costs its task, and a standstill ends the process."""

import asyncio
import os
import traceback

import pytest

from cod_lightning.cli import main
from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.deployment import ContextStore, DeployedAgent
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.envs.process_world import ProcessWorld
from cod_lightning.models import TinyPolicy
from cod_lightning.rewards import Reward
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.deadlines import Deadlines
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import EpisodeKind, EpisodeStatus, Split
from tests.cases import each
from tests.faulty_worlds import FaultyLevers
from tests.stubs import FunctionEngine, PlainContext, WordWorld

COMPACT = HintContext(protocol="compact")


class HangsAt(FunctionEngine):
    """Never answers the dialogues that end so."""

    def __init__(self, chat, end):
        super().__init__(lambda _: (*chat.encode("w1"), chat.end_of_turn))
        self.end = end

    async def generate(self, request):
        if request.dialogue.endswith(self.end):
            await asyncio.sleep(3600)
        return await super().generate(request)


class HangsOnTask(Reward):
    """Gives 0 to all tasks but one, which it never answers."""

    async def __call__(self, episode, task):
        if task.id.endswith(".1"):
            await asyncio.sleep(3600)
        return 0.0


def live(folder, *, world=None, mechanism=None, end="never", split=Split.TEST, **setting):
    """Four tasks; the episodes that are in the store when it is opened again, and its contexts."""
    world, mechanism = world or WordWorld(), mechanism or PlainContext()
    deadlines = setting.pop("deadlines", Deadlines())
    chat = Chat(TinyPolicy().tokenizer(beside(world, Vocabulary).words() + beside(mechanism, Words).words() + ("w1",)))
    sampler = Sampler(engine=HangsAt(chat, end), chat=chat, window=400, max_new_tokens=4, deadlines=deadlines)
    store = ContextStore(folder)
    agent = DeployedAgent(Setting(env=world, mechanism=mechanism, sampler=sampler, **setting), store)
    for task in world.sample_pack(split=split, index=1, num_tasks=4).tasks:
        agent.solve(task)
    assert sampler.liveness.lines() == []
    store.close()
    again = ContextStore(folder, create=False)
    episodes, versions = [one.episode for one in again.episodes()], list(again.versions())
    again.close()
    updated = [e for e in episodes if e.kind is EpisodeKind.UPDATE and e.status is not EpisodeStatus.FAILED]
    assert len(versions) == 1 + len(updated)
    return episodes


def faults(episodes, kind=EpisodeKind.SOLVE):
    return [e.fault if e.status is EpisodeStatus.FAILED else None for e in episodes if e.kind is kind]


@each(("deadlines", "fault"), [(Deadlines(turn_s=0.1), "TurnTimeout"), (Deadlines(episode_s=0.1), "EpisodeTimeout")])
def test_an_engine_that_hangs_in_one_task_costs_that_task(tmp_path, deadlines, fault):
    episodes = live(tmp_path, end="/1.1.2", deadlines=deadlines)
    assert faults(episodes) == [None, fault, None, None]
    assert [e.reward is None for e in episodes if e.kind is EpisodeKind.SOLVE] == [False, True, False, False]
    assert faults(episodes, EpisodeKind.UPDATE) == [None] * 3


def test_an_engine_that_hangs_in_an_update_costs_the_update_and_keeps_the_context(tmp_path):
    episodes = live(tmp_path, end="/1.1.3", deadlines=Deadlines(turn_s=0.1))
    assert faults(episodes) == [None] * 4
    assert faults(episodes, EpisodeKind.UPDATE) == [None, "TurnTimeout", None, None]


def test_a_reward_that_hangs_costs_its_task(tmp_path):
    episodes = live(tmp_path, rewards={"judge": HangsOnTask()}, deadlines=Deadlines(reward_s=0.1))
    assert faults(episodes) == [None, "RewardTimeout", None, None]
    assert [e.reward is None for e in episodes if e.kind is EpisodeKind.SOLVE] == [False, True, False, False]


@pytest.mark.slow
def test_an_environment_that_hangs_in_its_worker_costs_its_task(tmp_path):
    world = ProcessWorld(FaultyLevers(("hangs",)), num_workers=1, step_s=1.0)
    episodes = live(tmp_path, world=world, mechanism=COMPACT, split=Split.TRAIN)
    assert faults(episodes) == [None, "WorldHung", None, None]


BASE = ["deploy", "--config", "smoke", "--warm_start", "null", "--torch_threads", "1", "--trainer.accelerator", "cpu"]
FAULTY = "{class_path: tests.faulty_worlds.FaultyLevers, init_args: {faults: [hangs], every: 2, split: TEST}}"


def deployed(state, *more):
    """Exit code of `deploy` in a forked child, over tasks of which the second hangs."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            stream = ("--stream", "3", "--num_tasks", "3")
            status = main([*BASE, "--state", str(state), *stream, *more])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
def test_a_standstill_ends_the_process_with_a_report_and_the_store_goes_on(tmp_path):
    state = tmp_path / "ada"
    assert deployed(state, "--data.env", FAULTY, "--data.deadlines.stall_s", "2") == 70
    report = (state / "stalled.txt").read_text()
    assert "nothing has moved for 2 s in the deployment (data.deadlines.stall_s)" in report
    assert "deploy/1!hangs" in report
    assert "deploy again to go on with the same --state" in report
    assert "--ckpt_path last" not in report
    store = ContextStore(state, create=False)
    assert store.num_solved() == 1
    store.close()
    worker = f"{{step_s: 1.0, num_workers: 1, world: {FAULTY}}}"
    inside = f"{{class_path: cod_lightning.envs.process_world.ProcessWorld, init_args: {worker}}}"
    assert deployed(state, "--data.env", inside) == 0
    store = ContextStore(state, create=False)
    assert faults([one.episode for one in store.episodes()]) == [None, "WorldHung", None, None]
    store.close()
