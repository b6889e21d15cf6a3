"""An agent that lives on."""

import os
import random
import select
import signal
import time
from contextlib import closing
from dataclasses import dataclass, replace

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import InTask, Intervention, Prepared, Stored, TextState
from cod_lightning.deployment import ContextStore, DeployedAgent
from cod_lightning.deployment.rows import packed, unpacked
from cod_lightning.engines.scripted import ScriptedEngine
from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.envs.grid import GridNavigation
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.lifecycles import Ask, ConnectTheDots, Program
from cod_lightning.lifecycles.best_of_n import BestOfN
from cod_lightning.methods.acts import ActsContext
from cod_lightning.methods.compacting import CompactingContext
from cod_lightning.methods.constant_state import ConstantStateContext
from cod_lightning.methods.episodes import EpisodesContext
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.methods.planner import PlanAndSolve
from cod_lightning.methods.skills import SkillsContext
from cod_lightning.methods.transcript import TranscriptContext
from cod_lightning.rollout.byte_chat import byte_chat
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.lifecycle import Life
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import EpisodeKind, EpisodeStatus, Message, Role, Split
from tests.cases import each
from tests.real_templates import CHATML, bpe_tokenizer

MECHANISM = HintContext(response_limit=None)


def _agent(folder, env=None, num_tasks: int = 8, mechanism=MECHANISM, program=ConnectTheDots(), **kwargs):  # noqa: B008
    env = env or Levers()
    pack = env.sample_pack(split=Split.TEST, index=0, num_tasks=num_tasks)
    sampler = scripted_sampler(beside(env, Players).reference(Reference.SCRIPTED, pack), mechanism)
    setting = Setting(env=env, mechanism=mechanism, sampler=sampler, program=program)
    return DeployedAgent(setting, ContextStore(folder), **kwargs), pack


def test_an_agent_gets_better_by_what_it_wrote_down(tmp_path):
    agent, pack = _agent(tmp_path)
    rewards = [agent.solve(task).reward for task in pack.tasks]
    assert rewards[2:] == [1.0] * 6
    assert [s.episode.kind for s in agent.store.episodes()] == [EpisodeKind.SOLVE, EpisodeKind.UPDATE] * 8
    assert "unknown" not in agent.store.current().text


def test_a_record_of_another_task_is_refused_before_as_many_are_made_of_it(tmp_path):
    agent, pack = _agent(tmp_path)
    agent.solve(pack.tasks[0])
    rows = agent.store._rows
    *row, _ = rows.db.execute("SELECT * FROM episodes WHERE id = 1").fetchone()
    row[-1] = packed(unpacked(row[-1]) | {"position": 10**12})
    rows.db.execute("PRAGMA foreign_keys=OFF")
    rows.db.execute("DELETE FROM episodes WHERE id = 1")
    rows._insert("episodes", row)
    agent.store.close()
    again, _ = _agent(tmp_path)
    with pytest.raises(DataError, match="the record of task 0 is that of another, 1000000000000"):
        again.resume(list(pack.tasks[:1]))


MECHANISMS = (
    *(MECHANISM, NotebookContext(response_limit=None), ConstantStateContext(), ActsContext(), SkillsContext()),
    *(CompactingContext(HintContext(), budget=60, summary_budget=20), EpisodesContext(), TranscriptContext()),
)


@each("mechanism", MECHANISMS[::3], slow=MECHANISMS)
def test_an_agent_goes_on_after_restarts_as_if_it_had_never_stopped(tmp_path, mechanism):
    lives = []
    for name, stops in (("restarted", (2, 5, 6)), ("whole", ())):
        agent, pack = _agent(tmp_path / name, mechanism=mechanism)
        for position, task in enumerate(pack.tasks):
            if position in stops:
                agent.store.close()
                agent, _ = _agent(tmp_path / name, mechanism=mechanism)
                agent.resume(list(pack.tasks[:position]))
            agent.solve(task)
        versions = [(one.text, one.state) for one in agent.store.versions()]
        lives.append((versions, [one.episode for one in agent.store.episodes()]))
    assert lives[0] == lives[1]
    kinds = [EpisodeKind.SOLVE, EpisodeKind.UPDATE][: 1 + mechanism.updates]
    assert [one.kind for one in lives[0][1]] == kinds * 8
    assert lives[0][0][-1][1], "it carries something"


OTHER = Chat(bpe_tokenizer(CHATML))
PLAN = PlanAndSolve(request="\n\nPlan first.")
NARROW = {"window": 540}
"""The second turn of a task has no room."""


@each(("before", "after"), [(NARROW, {}), ({}, NARROW), ({"chat": OTHER}, {}), ({}, {"chat": OTHER})])
def test_an_agent_is_taken_over_by_another_policy_whatever_its_tokens_and_its_window(tmp_path, before, after):
    for settings, resumed in ((before, False), (after, True)):
        agent, pack = _agent(tmp_path)
        sampler = replace(agent.setting.sampler, **settings)
        agent = DeployedAgent(replace(agent.setting, sampler=sampler), agent.store)
        if resumed:
            agent.resume(list(pack.tasks[:3]))
        for task in pack.tasks[3:] if resumed else pack.tasks[:3]:
            agent.solve(task)
        agent.store.close()
    assert agent.life.position == 8


def test_a_state_is_read_from_the_store_only_where_it_is_not_the_one_that_was_left(tmp_path):
    read = []

    class CountedStored(Stored):
        def load(self, text):
            read.append(text)
            return super().load(text)

    class Counted(EpisodesContext):
        companions = (CountedStored, *EpisodesContext.companions)

    agent, pack = _agent(tmp_path, mechanism=Counted())
    for task in pack.tasks[:3]:
        agent.solve(task)
    assert read == []
    agent.store.revert(1)
    agent.solve(pack.tasks[3])
    assert len(read) == 1


def test_a_world_that_carries_something_over_is_brought_back_to_where_it_was(tmp_path):
    env = GridNavigation(world_memory=True)
    agent, pack = _agent(tmp_path, env, num_tasks=3)
    for task in pack.tasks[:2]:
        agent.solve(task)
    again, _ = _agent(tmp_path, GridNavigation(world_memory=True), num_tasks=3)
    again.resume(list(pack.tasks[:2]))
    assert again.setting.env.reset(options={"task": pack.tasks[2]}) == agent.setting.env.reset(
        options={"task": pack.tasks[2]}
    )


class Later(Levers):
    """Says something else after an answer alone."""

    def step(self, action):
        said, *rest = super().step(action)
        return f"{said} Indeed.", *rest


@each("world", [Levers(max_turns=3), Later()])
def test_a_world_that_says_something_else_is_refused(tmp_path, world):
    agent, pack = _agent(tmp_path)
    agent.solve(pack.tasks[0])
    other, other_pack = _agent(tmp_path, world)
    with pytest.raises(DataError, match="another world"):
        other.resume([other_pack.tasks[0]])


class Jamming(Levers):
    """Breaks in its second task, at its first answer or where it begins."""

    def __init__(self, *, begins=True):
        super().__init__()
        self.begins, self.jammed = begins, False

    def step(self, action):
        if self.jammed:
            raise RuntimeError("jammed")
        return super().step(action)

    def reset(self, *, seed=None, options=None):
        self.jammed = bool(options) and options["task"].id == "1"
        if self.jammed and not self.begins:
            raise RuntimeError("jammed")
        return super().reset(seed=seed, options=options)


def test_a_world_that_raises_costs_its_task_only(tmp_path):
    agent, pack = _agent(tmp_path, Jamming())
    episodes = [agent.solve(task) for task in pack.tasks[:4]]
    assert [e.status is EpisodeStatus.FAILED for e in episodes] == [False, True, False, False]
    assert episodes[1].reward is None
    assert [v.position for v in agent.store.versions()] == [None, 0, 2, 3]
    again, _ = _agent(tmp_path, Jamming())
    again.resume(list(pack.tasks[:4]))
    assert again.solve(pack.tasks[4]).position == 4


def test_the_state_of_another_mechanism_is_refused_with_the_remedy_and_nothing_is_lost(tmp_path):
    agent, pack = _agent(tmp_path)
    agent.solve(pack.tasks[0])
    other, _ = _agent(tmp_path, mechanism=NotebookContext())
    other.resume(list(pack.tasks[:1]))
    with pytest.raises(DataError, match=r"HintContext version 1; data\.context is NotebookContext version 1\. Use"):
        other.solve(pack.tasks[1])
    assert len(list(other.store.episodes())) == 2


class DoubtingInTask(InTask):
    def on_turn(self, state, response, tokens):
        text, _, again = state.text.partition("|")
        return Intervention(TextState(text), again) if again else None


class Doubting(HintContext):
    """Answers every first response of a task itself, with what the task began with."""

    companions = (DoubtingInTask, *HintContext.companions)

    def prepare(self, state, rules, observation):
        system = super().prepare(state, rules, observation).system
        return Prepared(system, TextState(f"{state.text}|Look again.\n{observation}"))


def test_a_state_that_only_a_reward_changed_is_stored_too(tmp_path):
    class Used(HintContext):
        def feedback(self, state, episode):
            return TextState(f"{state.text}+")

    agent, pack = _agent(tmp_path, mechanism=Used(response_limit=None), program=ConnectTheDots(every=9))
    for task in pack.tasks[:3]:
        agent.solve(task)
    assert [v.text for v in agent.store.versions()] == ["", "+", "++", "+++"]
    assert list(agent.store.episodes())[2].episode.context_before == "++"


def test_turns_that_the_mechanism_answered_are_not_repeated_to_the_environment(tmp_path):
    mechanism = Doubting(response_limit=None)
    agent, pack = _agent(tmp_path, GridNavigation(world_memory=True), num_tasks=3, mechanism=mechanism)
    for task in pack.tasks[:2]:
        agent.solve(task)
    assert any(turn.observation.startswith("Look again.") for s in agent.store.episodes() for turn in s.episode.turns)
    again, _ = _agent(tmp_path, GridNavigation(world_memory=True), num_tasks=3, mechanism=mechanism)
    again.resume(list(pack.tasks[:2]))
    last = {"task": pack.tasks[2]}
    assert again.life.env.reset(options=last) == agent.life.env.reset(options=last)
    other, _ = _agent(tmp_path, GridNavigation(world_memory=False), num_tasks=3, mechanism=mechanism)
    with pytest.raises(DataError, match="another world"):
        other.resume(list(pack.tasks[:2]))


def test_a_task_that_ended_with_a_full_window_is_repeated_as_far_as_the_environment_saw_it(tmp_path):
    agent, pack = _agent(tmp_path)
    sampler = agent.setting.sampler
    observation, _ = agent.setting.env.reset(options={"task": pack.tasks[0]})
    system = MECHANISM.prepare(MECHANISM.empty(), agent.setting.env.rules, observation).system
    first = sampler.chat.opening((Message(Role.SYSTEM, system), Message(Role.USER, observation)))
    short = DeployedAgent(replace(agent.setting, sampler=replace(sampler, window=len(first) + 20)), agent.store)
    episode = short.solve(pack.tasks[0])
    assert (episode.status, episode.feedback) == (EpisodeStatus.TRUNCATED, "The policy's window is full.")
    again, _ = _agent(tmp_path)
    again.resume([pack.tasks[0]])
    assert again.solve(pack.tasks[1]).position == 1


def test_a_task_that_failed_before_the_process_died_is_followed_by_no_update(tmp_path):
    class Broken(Levers):
        def step(self, action):
            raise RuntimeError("jammed")

    agent, pack = _agent(tmp_path, Broken())
    agent.solve(pack.tasks[0])
    again, _ = _agent(tmp_path)
    again.resume([pack.tasks[0]])
    assert [s.episode.kind for s in again.store.episodes()] == [EpisodeKind.SOLVE]


def _went_on(folder, num_tasks: int, env, mechanism, **kwargs) -> DeployedAgent:
    """The agent of this folder, gone on to so many tasks."""
    agent, pack = _agent(folder, env, num_tasks=num_tasks, mechanism=mechanism, **kwargs)
    done = agent.store.num_solved()
    agent.resume(list(pack.tasks[:done]))
    for task in pack.tasks[done:]:
        agent.solve(task)
    return agent


def states_after(folder, num_tasks: int, env=None, mechanism=MECHANISM) -> list[tuple[str, str]]:
    """Text and state of each version of the context once so many tasks are solved."""
    agent = _went_on(folder, num_tasks, env, mechanism)
    versions = [(version.text, version.state) for version in agent.store.versions()]
    agent.store.close()
    return versions


def kill_and_check(
    folder, num_kills: int, num_tasks: int, rng: random.Random, env=None, mechanism=MECHANISM, most_s: float = 0.25
) -> int:
    """Start, kill at a random moment (every other time once something was done), look at what is there; tasks done."""
    told = 0
    byte_chat()  # preloaded, so that children live long enough to be killed in the middle of something
    for n in range(num_kills):
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(out)
            try:
                _went_on(str(folder), num_tasks, env, mechanism, on_episode=lambda _, into=into: os.write(into, b"."))
            finally:
                os._exit(0)
        os.close(into)
        if n % 2:  # a slow machine has done nothing within `most_s`
            select.select([out], [], [])
        time.sleep(rng.uniform(0.005, most_s))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while said := os.read(out, 65_536):
            told += len(said)
        os.close(out)
        store = ContextStore(folder)
        episodes, versions = list(store.episodes()), list(store.versions())
        store.close()
        assert len(episodes) >= told, "an episode that was reported is gone"
        told = len(episodes)
        of_a_task = [EpisodeKind.SOLVE, EpisodeKind.UPDATE][: 1 + mechanism.updates]
        assert [s.episode.kind for s in episodes] == (of_a_task * num_tasks)[: len(episodes)]
        assert [s.episode.position for s in episodes] == [n // len(of_a_task) for n in range(len(episodes))]
        left = {(s.episode.position, s.episode.kind): s.episode.context_after for s in episodes}
        wrote = [EpisodeKind.UPDATE if v.reason == "update" else EpisodeKind.SOLVE for v in versions[1:]]
        assert [v.text for v in versions[1:]] == [
            left[v.position, kind] for v, kind in zip(versions[1:], wrote, strict=True)
        ]
        assert wrote.count(of_a_task[-1]) == sum(s.episode.kind is of_a_task[-1] for s in episodes)
    return -(-told // (1 + mechanism.updates))


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism", [MECHANISM, NotebookContext(), SkillsContext(), EpisodesContext()], ids=lambda one: type(one).__name__
)
def test_killed_at_any_moment_it_loses_nothing_that_was_finished_and_goes_on(tmp_path, mechanism):
    done = kill_and_check(tmp_path / "killed", num_kills=5, num_tasks=400, rng=random.Random(1), mechanism=mechanism)
    assert done > 0
    killed, whole = (states_after(tmp_path / name, done + 3, mechanism=mechanism) for name in ("killed", "whole"))
    assert killed == whole


def test_its_environment_is_closed_with_it_and_one_that_cannot_be_is_logged(tmp_path, caplog):
    class Held(Levers):
        closed = 0

        def close(self):
            self.closed += 1
            raise OSError("the container is gone")

    agent, pack = _agent(tmp_path, Held())
    with closing(agent):
        agent.solve(pack.tasks[0])
    assert agent.life.env.closed == 1
    assert "EnvironmentFailure: OSError: the container is gone" in caplog.text


@each(("program", "kinds"), [(BestOfN(n=3), ["solve", "update"]), (PLAN, ["write", "solve", "update"])])
def test_an_agent_runs_any_program_and_goes_on_in_it_after_a_restart(tmp_path, program, kinds):
    agent, pack = _agent(tmp_path, program=program)
    assert [agent.solve(task).position for task in pack.tasks[:2]] == [0, 1]
    agent.store.close()
    again, _ = _agent(tmp_path, program=program)
    again.resume(list(pack.tasks[:2]))
    assert again.solve(pack.tasks[2]).position == 2
    stored = [(one.episode.kind.value, one.episode.position) for one in again.store.episodes()]
    assert stored == [(kind, position) for position in range(3) for kind in kinds]


@each("kind", [EpisodeKind.SOLVE, EpisodeKind.UPDATE])
@each("mechanism", [MECHANISM, SkillsContext()])
def test_the_record_and_the_noise_of_an_agent_that_died_between_two_episodes_are_those_of_one_that_did_not(
    tmp_path, monkeypatch, mechanism, kind
):
    sample, seeds = ScriptedEngine.generate, []

    async def noted(self, request):
        seeds.append(request.noise_seed)
        return await sample(self, request)

    def die(episode):
        if episode.kind is kind and episode.position == 3:
            raise InterruptedError

    monkeypatch.setattr(ScriptedEngine, "generate", noted)
    agent, pack = _agent(tmp_path / "died", mechanism=mechanism, on_episode=die)
    for task in pack.tasks[:3]:
        agent.solve(task)
    with pytest.raises(InterruptedError):
        agent.solve(pack.tasks[3])
    died = _went_on(tmp_path / "died", 6, None, mechanism)
    num = len(seeds)
    whole = _went_on(tmp_path / "whole", 6, None, mechanism)
    assert seeds[num:] == seeds[:num]
    assert [one.episode for one in died.store.episodes()] == [one.episode for one in whole.store.episodes()]
    assert died.store.current().text == whole.store.current().text


def test_an_agent_that_died_between_a_plan_and_its_task_is_shown_that_plan(tmp_path):
    def die(episode):
        if episode.kind is EpisodeKind.WRITE:
            raise InterruptedError

    agent, pack = _agent(tmp_path / "died", program=PLAN)
    agent.solve(pack.tasks[0])
    agent._on_episode = die
    with pytest.raises(InterruptedError):
        agent.solve(pack.tasks[1])
    again, whole = (_agent(tmp_path / name, program=PLAN)[0] for name in ("died", "whole"))
    again.resume(list(pack.tasks[:1]))
    again.solve(pack.tasks[1])
    for task in pack.tasks[:2]:
        whole.solve(task)
    lives = [[one.episode for one in of.store.episodes()] for of in (again, whole)]
    assert lives[0] == lives[1]


@each("stops", [False, True])
def test_a_plan_that_fails_costs_its_task_alone(tmp_path, stops):
    agent, pack = _agent(tmp_path, Jamming(begins=False), program=PLAN)
    agent.solve(pack.tasks[0])
    if stops:
        agent._on_episode = lambda episode: 1 / 0
        with pytest.raises(ZeroDivisionError):
            agent.solve(pack.tasks[1])
        agent, _ = _agent(tmp_path, Jamming(begins=False), program=PLAN)
        agent.resume(list(pack.tasks[:1]))
    assert agent.solve(pack.tasks[1]).status is EpisodeStatus.SKIPPED
    agent, _ = _agent(tmp_path, Jamming(begins=False), program=PLAN)
    agent.resume(list(pack.tasks[:2]))
    assert agent.solve(pack.tasks[2]).reward is not None
    assert [one is None for one in agent.store.rewards()] == [False, True, False]


@dataclass(frozen=True)
class Ordered(Program):
    """What it has at each task, in this order."""

    kinds: tuple[str, ...]

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            solved = None
            for kind in self.kinds:
                if kind == "write":
                    await agent.ask(task, Ask("\n\nPlan."))
                else:
                    solved = await agent.solve(task)
            await agent.rewrite(solved)


@each(
    ("kinds", "expected"),
    [
        (("write", "write", "solve"), "one write episode a task"),
        (("solve", "solve"), "one solve episode a task in `deploy`, followed by a rewrite at most"),
        (("solve", "write"), "one solve episode a task in `deploy`, followed by a rewrite at most"),
    ],
)
def test_a_program_that_has_more_at_a_task_than_an_agent_can_go_on_from_is_named(tmp_path, kinds, expected):
    def live():
        agent, pack = _agent(tmp_path, program=Ordered(kinds))
        agent.resume(list(pack.tasks[: agent.store.num_solved()]))
        agent.solve(pack.tasks[0])

    for _ in range(2):
        with pytest.raises(ConfigError, match=rf"data\.program is Ordered; expected a program with {expected}"):
            live()


@dataclass(frozen=True)
class FirstTwo(Program):
    """Ends after two tasks."""

    async def __call__(self, agent, pack):
        for task in pack.tasks[:2]:
            await agent.rewrite(await agent.solve(task))


def test_a_program_that_comes_to_an_end_is_named_at_the_first_task_that_it_does_not_solve(tmp_path):
    agent, pack = _agent(tmp_path, program=FirstTwo())
    for task in pack.tasks[:2]:
        agent.solve(task)
    with pytest.raises(ConfigError, match="FirstTwo; expected a program that solves every task in `deploy`"):
        agent.solve(pack.tasks[2])
    assert agent.store.num_solved() == 2


def test_attempts_are_made_beside_the_task_at_hand_alone_and_seen_there_also_after_a_restart(tmp_path, monkeypatch):
    fork, attempts, forked, seen = Life.fork, Life.attempts, [], []

    def noted(self, task, *how):
        forked.append(task.id)
        fork(self, task, *how)

    async def looked(self):
        seen.extend(found := await attempts(self))
        return found

    monkeypatch.setattr(Life, "fork", noted)
    monkeypatch.setattr(Life, "attempts", looked)
    for position in range(3):
        agent, pack = _agent(tmp_path, program=BestOfN(n=3))
        agent.resume(list(pack.tasks[:position]))
        agent.solve(pack.tasks[position])
        agent.store.close()
    assert forked == [task.id for task in pack.tasks[:3] for _ in range(2)]
    assert [one.position for one in seen] == [0, 0, 1, 1, 2, 2]


@dataclass(frozen=True)
class OnlyFailures(Program):
    """The context is rewritten after tasks that were not solved."""

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            solved = await agent.solve(task)
            if not solved.success and task is not pack.tasks[-1]:
                await agent.rewrite(solved)


def test_an_agent_s_program_sees_what_came_of_its_task(tmp_path):
    agent, pack = _agent(tmp_path, program=OnlyFailures())
    outcomes = [agent.solve(task).success for task in pack.tasks[:4]]
    assert {True, False} == set(outcomes)
    updated = [one.episode.position for one in agent.store.episodes() if one.episode.kind is EpisodeKind.UPDATE]
    assert updated == [position for position, solved in enumerate(outcomes) if not solved]
