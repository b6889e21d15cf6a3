"""Programs: what ships, what is refused, and credit of their lifecycles against loops from the definition."""

import asyncio
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.references import play_reference, scripted_sampler
from cod_lightning.lifecycles import Ask, ConnectTheDots, Program, outline
from cod_lightning.lifecycles.controls import Controlled
from cod_lightning.methods.propose import ProposeAndSolve
from cod_lightning.methods.transcript import TranscriptContext
from cod_lightning.rollout import transcript
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Split
from tests.cases import each
from tests.small_fit import small_fit
from tests.stubs import FunctionEngine, WordWorld
from tests.word_play import SAY_W1, play

SOLVE, UPDATE, WRITE = EpisodeKind.SOLVE, EpisodeKind.UPDATE, EpisodeKind.WRITE


def steps(program, num_tasks, updates=True):
    return [(step.kind, step.position) for step in outline(program, num_tasks, updates)]


@given(num_tasks=st.integers(1, 40))
def test_the_paper_s_lifecycle_is_solve_and_update_in_turn_and_ends_with_a_solve(num_tasks):
    kinds = [kind for kind, _ in steps(ConnectTheDots(), num_tasks)]
    assert kinds == ([SOLVE, UPDATE] * num_tasks)[:-1]


@given(num_tasks=st.integers(1, 40), every=st.integers(1, 12))
def test_an_update_follows_every_nth_task_but_the_last_and_shorter_packs_agree(num_tasks, every):
    order = steps(ConnectTheDots(every=every), num_tasks)
    assert [p for kind, p in order if kind is UPDATE] == [n for n in range(num_tasks - 1) if (n + 1) % every == 0]
    longer = steps(ConnectTheDots(every=every), num_tasks + 1)
    assert longer[: len(order)] == order


@dataclass(frozen=True)
class Nothing(Program):
    async def __call__(self, agent, pack):
        """Solves no task."""


@dataclass(frozen=True)
class Elsewhere(ConnectTheDots):
    async def __call__(self, agent, pack):
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Staying(ConnectTheDots):
    async def __call__(self, agent, pack):
        try:
            await asyncio.sleep(0)
        except GeneratorExit:
            await asyncio.sleep(0)


@dataclass(frozen=True)
class WithoutEnd(Program):
    """Each task until an episode says so."""

    until: Callable[[Episode], bool]

    async def __call__(self, agent, pack):
        for task in pack.tasks:
            while not self.until(await agent.solve(task)):
                pass


def test_a_program_without_end_is_refused_and_one_that_goes_on_after_a_failure_ends_the_run(monkeypatch):
    monkeypatch.setattr("cod_lightning.lifecycles.base.MOST_EPISODES", 1000)
    with pytest.raises(ConfigError, match=r"data\.program is one of 1,00\d episodes"):
        outline(WithoutEnd(lambda solved: bool(solved.success)), 3)
    program = WithoutEnd(lambda solved: solved.status is EpisodeStatus.COMPLETED)
    assert steps(program, 2) == [(SOLVE, 0), (SOLVE, 1)]
    with pytest.raises(ConfigError, match=r"after a failed one are skipped"):
        play(env=WordWorld(raise_in=".1"), num_tasks=2, setting={"program": program})


@dataclass(frozen=True)
class Misusing(Program):
    """Writes a text and solves the first task; then does something to the agent in a rollout, not in an outline."""

    then: Callable[..., object]

    async def __call__(self, agent, pack):
        written = (await agent.ask(pack.tasks[0], Ask())).episode
        solved = await agent.solve(pack.tasks[0])
        if hasattr(agent, "setting"):
            found = self.then(agent, written, solved)
            if inspect.isawaitable(found):
                await found


def exits(agent, written, solved):
    raise SystemExit(0)


class Speechless(Exception):
    def __str__(self):
        raise KeyError


def cannot_say_why(agent, written, solved):
    raise Speechless


def is_cancelled(agent, written, solved):
    raise asyncio.CancelledError


async def leaves_an_episode(agent, written, solved):
    agent.left = asyncio.create_task(agent.solve(agent.tasks[0]))
    await asyncio.sleep(0)


def pays_twice(agent, written, solved):
    agent.pay(written, [solved], first=1.0)
    agent.pay(written, [solved], second=1.0)


MISUSES = {
    "it raises": (
        lambda agent, written, solved: 1 / 0,
        r"raises nothing \(ZeroDivisionError: .*test_programs\.py:\d+\)",
    ),
    "it ends the process": (exits, r"raises nothing \(SystemExit: 0, .*test_programs\.py:\d+\)"),
    "it raises what cannot be shown": (cannot_say_why, r"raises nothing \(Speechless: \(its message cannot be shown\)"),
    "it is cancelled": (is_cancelled, r"raises nothing \(CancelledError"),
    "it ends before its episode": (leaves_an_episode, "waits for each episode before it ends"),
    "it rewrites in view of a text": (
        lambda agent, written, solved: agent.rewrite(replaced(written)),
        "raises nothing",
    ),
    "it pays twice": (pays_twice, "pays an episode of its own lifecycle, and once"),
    "it pays what is no episode of its own": (
        lambda agent, written, solved: agent.pay(structs.replace(written), [solved], a=1.0),
        "pays an episode of its own lifecycle, and once",
    ),
    "it pays with words as weights": (
        lambda agent, written, solved: agent.pay(written, [solved], "1"),
        "weighs rewards with finite numbers",
    ),
    "it pays without end": (
        lambda agent, written, solved: agent.pay(written, [solved], [math.inf]),
        "weighs rewards with finite numbers",
    ),
    "it weighs what is no episode of its own": (
        lambda agent, written, solved: agent.pay(written, [structs.replace(solved)], [1.0]),
        "pays an episode of its own lifecycle, and once",
    ),
    "it weighs more than came of it": (
        lambda agent, written, solved: agent.pay(written, [solved], [1.0, 0.5]),
        r"raises nothing \(ValueError",
    ),
    "it pays in words": (
        lambda agent, written, solved: agent.pay(written, [solved], a="1"),
        "pays numbers under names of letters",
    ),
    "it pays under a name that acts on terminals": (
        lambda agent, written, solved: agent.pay(written, [solved], **{"\x1b[2J": 1.0}),
        "pays numbers under names of letters",
    ),
    "it plays two episodes at once": (
        lambda agent, written, solved: asyncio.gather(*(agent.solve(agent.tasks[0]) for _ in "ab")),
        "waits for each episode before it begins the next",
    ),
    "it compares a task by a number": (
        lambda agent, written, solved: agent.solve(agent.tasks[0], compared_with=7),
        "compares by a text of at most 200 letters, not a int",
    ),
    "it compares a task by a name without end": (
        lambda agent, written, solved: agent.solve(agent.tasks[0], compared_with="x" * 201),
        "compares by a text of at most 200 letters",
    ),
    "it compares a text by a number": (
        lambda agent, written, solved: agent.ask(agent.tasks[0], Ask(), compared_with=7),
        "compares by a text of at most 200 letters, not a int",
    ),
    "it compares a rewrite by a number": (
        lambda agent, written, solved: agent.rewrite(solved, compared_with=7),
        "compares by a text of at most 200 letters, not a int",
    ),
    "it compares an attempt by a number": (
        lambda agent, written, solved: agent.fork(agent.tasks[0], compared_with=7),
        "compares by a text of at most 200 letters, not a int",
    ),
    "it solves nothing": (lambda agent, written, solved: agent.episodes.clear(), "solves a task"),
    "it forks a task that it does not solve": (
        lambda agent, written, solved: agent.fork(agent.tasks[0]),
        "solves each task beside which it begins an attempt",
    ),
}


class Slow(FunctionEngine):
    async def generate(self, request):
        await asyncio.sleep(0)
        return await super().generate(request)


def replaced(written):
    return structs.replace(written, position=7)


@each("misuse", MISUSES)
def test_a_program_that_misuses_its_agent_ends_the_run_in_one_line(misuse):
    then, said = MISUSES[misuse]
    with pytest.raises(ConfigError, match=rf"data\.program is Misusing; expected a program that {said}"):
        play(Slow(lambda _: SAY_W1), num_tasks=2, setting={"program": Misusing(then)})


def test_what_is_paid_is_written_as_a_number(tmp_path):
    program = Misusing(lambda agent, written, solved: agent.pay(written, [solved], whole=True))
    updates = small_fit(tmp_path, WeightSync(self_test=None), program=program).updates
    again = [one for group in updates.groups for one in transcript.load(transcript.dump(group))]
    assert {one.episodes[0].parts["whole"] for group in again for one in group.lifecycles} == {1.0}


def test_what_an_episode_is_paid_comes_on_top_of_its_own_reward():
    program = Misusing(lambda agent, written, solved: agent.pay(solved, [], more=0.5))
    (life,) = play(Slow(lambda _: SAY_W1), num_tasks=2, setting={"program": program})[0].lifecycles
    own = play(Slow(lambda _: SAY_W1), num_tasks=2)[0].lifecycles[0].solves[0]
    assert own.reward
    assert life.solves[0].parts == {"world": own.reward, "more": 0.5}
    assert life.solves[0].reward == own.reward + 0.5


@dataclass(frozen=True)
class Raising(Program):
    async def __call__(self, agent, pack):
        await agent.ask(pack.tasks[0], None)


@each("program", [ConnectTheDots(every=2), ProposeAndSolve(), ProposeAndSolve(proposes=False)])
def test_outside_training_nothing_is_proposed_and_every_task_is_one_of_the_pack_s_own(program):
    found = outline(program.held_out, 7)
    assert WRITE not in {step.kind for step in found}
    assert [step.task for step in found if step.kind is SOLVE] == list(range(7))


def test_a_mechanism_without_updates_leaves_the_solve_episodes_of_a_program():
    assert steps(ConnectTheDots(), 3, updates=False) == [(SOLVE, n) for n in range(3)]


@dataclass(frozen=True)
class OnlyTheFirst(Program):
    """Each task begins with what was written after the first one, and the last is shown an empty context."""

    async def __call__(self, agent, pack):
        noted = await agent.rewrite(await agent.solve(pack.tasks[0]))
        for task in pack.tasks[1:-1]:
            await agent.rewrite(await agent.solve(task, context=noted.state_after))
        await agent.solve(pack.tasks[-1], shown=HintContext().empty())


def test_the_outline_of_a_program_that_looks_at_its_rewrites_has_them():
    order = [SOLVE, UPDATE] * 3 + [SOLVE]
    assert [kind for kind, _ in steps(OnlyTheFirst(), 4)] == order


@each(("shown", "expected"), [(None, [False, True, True, False]), (HintContext().empty(), [False] * 4)])
def test_a_control_leaves_a_program_its_own_contexts_but_for_what_it_hides(shown, expected):
    pack = Levers().sample_pack(split=Split.TRAIN, index=0, num_tasks=4)
    sampler = scripted_sampler(beside(Levers(), Players).reference(Reference.SCRIPTED, pack), HintContext())
    program = Controlled(shown=shown, program=OnlyTheFirst())
    (group,) = run_groups([pack], 1, Setting(env=Levers(), mechanism=HintContext(), sampler=sampler, program=program))
    (life,) = group.lifecycles
    noted = life.updates[0].context_after
    assert [one.context_before for one in life.solves[1:3]] == [noted, noted]
    prompts = [sampler.chat.decode(one.turns[0].new_ids) for one in life.solves]
    assert [noted in prompt for prompt in prompts] == expected


@each(("context", "kinds"), [(TranscriptContext, [SOLVE] * 3), (HintContext, [SOLVE, UPDATE] * 2 + [SOLVE])])
def test_a_context_that_is_written_within_tasks_is_not_rewritten_between_them(context, kinds):
    pack = Levers().sample_pack(split=Split.TRAIN, index=0, num_tasks=3)
    (life,) = play_reference(Levers(), [pack], Reference.SCRIPTED, context())
    assert [episode.kind for episode in life.episodes] == kinds
