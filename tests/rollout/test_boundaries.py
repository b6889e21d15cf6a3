"""Whatever an environment, a context mechanism or an engine raises costs its lifecycle, under its own name, and nothing else."""

import asyncio
import functools
import math
import os
import signal
from types import SimpleNamespace

import pytest

from cod_lightning.contexts.base import ContextUpdate, InTask, Intervention, Prepared, TextState
from cod_lightning.envs.base import Traits
from cod_lightning.errors import EngineRefused, EnvironmentFailure
from cod_lightning.rollout.between_tasks import MOST_UPDATE_TURNS
from cod_lightning.rollout.boundaries import check_reward
from cod_lightning.rollout.stats import count_faults
from cod_lightning.types import EpisodeStatus, Message, Role
from tests.cases import each
from tests.stubs import FunctionEngine, PlainContext, WordWorld
from tests.word_play import SAY_W1, play


class Speechless(Exception):
    """An exception whose message raises."""

    def __str__(self):
        raise RuntimeError("no words")


ERRORS = [
    ValueError,
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    asyncio.CancelledError,
    Speechless,
    StopIteration,
    MemoryError,
]


def groups(world=None, mechanism=None, engine=None, num_packs=3, num_tasks=3):
    return play(engine, world, mechanism, num_packs=num_packs, num_siblings=2, num_tasks=num_tasks)


def lost(found):
    """The packs whose lifecycles failed."""
    return [any(life.failed for life in group.lifecycles) for group in found]


@functools.cache
def faultless():
    return groups()


def others_are_the_same(found):
    return [g.lifecycles for g in found[::2]] == [g.lifecycles for g in faultless()[::2]]


class Costly(WordWorld):
    """A task costs a turn each, which its end says."""

    traits = Traits(reward_range=(-3.0, -1.0))

    def step(self, action):
        observation, _, *ended = super().step(action)
        return observation, -3.0 if ended[0] else 0.0, *ended


def test_before_its_end_a_task_has_a_reward_of_0_also_where_its_own_is_never_0():
    for group in groups(Costly()):
        assert {one.reward for life in group.lifecycles for one in life.solves} == {-3.0}


class BadWorld(WordWorld):
    """In pack 1, one of its methods has the fault."""

    def __init__(self, method, does):
        super().__init__()
        self.method, self.does, self.here = method, does, False

    def reset(self, *, seed=None, options=None):
        self.here = options["task"].id.startswith("1.")
        if self.here and self.method == "reset":
            return self.does(), {}
        return super().reset(options=options)

    def step(self, action):
        if self.here and self.method == "step":
            return self.does(), 0.0, False, False, {}
        return super().step(action)

    @property
    def rules(self):
        return self.does() if self.here and self.method == "rules" else super().rules

    @property
    def success(self):
        return self.does() if self.here and self.method == "success" else super().success

    @property
    def status(self):
        return self.does() if self.here and self.method == "status" else super().status

    def close(self):
        if self.here and self.method == "close":
            self.does()


def raising(error):
    def does(*_, **__):
        raise error("on purpose")

    return does


@pytest.mark.slow
@each("blocking", [False, True])
@each(
    ("method", "error"),
    [
        *(("step", error) for error in (*ERRORS, StopAsyncIteration)),
        ("reset", KeyboardInterrupt),
        *((method, SystemExit) for method in ("reset", "rules", "success", "status", "close")),
    ],
)
def test_whatever_an_environment_raises_costs_its_lifecycles_alone_in_a_thread_too(method, error, blocking):
    world = BadWorld(method, raising(error))
    world.traits = Traits(blocking=blocking)
    found = groups(world)
    assert lost(found) == [False, True, False]
    assert count_faults(found) == {"EnvironmentFailure": 2}
    assert others_are_the_same(found)


@each("text", [None, 7, b"w1", "\ud800", "w" * 1_000_001])
@each("method", ["reset", "step", "rules"])
def test_what_no_tokenizer_takes_is_the_environment_s_failure(method, text):
    found = groups(BadWorld(method, lambda: text))
    assert count_faults(found) == {"EnvironmentFailure": 2}
    assert others_are_the_same(found)


@each("status", [EpisodeStatus.FAILED, "won"])
def test_a_status_that_no_solve_episode_may_have_is_the_environment_s_failure(status):
    assert count_faults(groups(BadWorld("status", lambda: status))) == {"EnvironmentFailure": 2}


class Uncopied(WordWorld):
    def __deepcopy__(self, memo):
        raise SystemExit("no copies")


def test_an_environment_that_cannot_be_closed_either_keeps_the_error_that_came_first():
    class Broken(BadWorld):
        def close(self):
            raise ValueError("close")

    found = groups(Broken("step", raising(KeyError)))
    (failed,) = [e for e in found[1].lifecycles[0].episodes if e.status is EpisodeStatus.FAILED]
    assert failed.error == "EnvironmentFailure: KeyError: 'on purpose'"


def test_a_reward_is_finite_where_its_range_is_not():
    class Unbounded(WordWorld):
        traits = Traits(reward_range=(-math.inf, math.inf))

    check_reward(-1e30, Unbounded())
    for reward in (math.inf, -math.inf, math.nan, 1e31):
        with pytest.raises(EnvironmentFailure, match="outside its range"):
            check_reward(reward, Unbounded())


@each(
    "wrong",
    [{"reward": 1e31}, {"reward": 10**400}, {"reward": "high"}, {"reason": "\ud800"}, {"reason": None}],
)
def test_an_update_that_is_none_costs_its_lifecycle(wrong):
    class Odd(PlainContext):
        def update(self, state, rules, episode, tokens):
            yield Message(Role.SYSTEM, "w2"), Message(Role.USER, "w3")
            return ContextUpdate(**({"state": state, "reward": 0.0, "parsed": True} | wrong))

    assert count_faults(groups(mechanism=Odd())) == {"ContextFailure": 6}


def test_an_environment_that_cannot_be_copied_costs_every_lifecycle_and_not_the_run():
    found = groups(Uncopied())
    assert count_faults(found) == {"EnvironmentFailure": 6}
    statuses = [e.status for e in found[0].lifecycles[0].episodes]
    assert statuses == [EpisodeStatus.FAILED] + [EpisodeStatus.SKIPPED] * 4


def test_a_task_that_never_ends_is_broken_off_where_no_window_ends_it():
    found = play(env=BadWorld("step", lambda: "w1"), num_packs=3, num_tasks=2, window=2**30)
    assert lost(found) == [False, True, False]
    assert count_faults(found) == {"EnvironmentFailure": 1}


class BadContextInTask(InTask):
    def on_turn(self, state, response, tokens):
        return self.of.does() if self.of.method == "on_turn" and state.text else None


class BadContext(PlainContext):
    """One of its methods has the fault, from the second task of every pack on."""

    companions = (BadContextInTask, *PlainContext.companions)

    def __init__(self, method, does):
        self.method, self.does = method, does

    def empty(self):
        return self.does() if self.method == "empty" else super().empty()

    def text(self, state):
        return self.does() if self.method == "text" and state.text else super().text(state)

    def prepare(self, state, rules, observation):
        return self.does() if self.method == "prepare" and state.text else super().prepare(state, rules, observation)

    def feedback(self, state, episode):
        return self.does() if self.method == "feedback" and episode.position else state

    def update(self, state, rules, episode, tokens):
        if self.method == "update":
            return self.does()
        return super().update(state, rules, episode, tokens)


@each(
    ("method", "error"),
    [
        *(("update", error) for error in ERRORS),
        *((method, SystemExit) for method in ("empty", "text", "prepare", "feedback", "on_turn")),
    ],
)
def test_whatever_a_mechanism_raises_is_a_context_failure_and_not_the_environment_s(method, error):
    found = groups(mechanism=BadContext(method, raising(error)), num_packs=1)
    assert count_faults(found) == {"ContextFailure": 2}
    (failed,) = [e for e in found[0].lifecycles[0].episodes if e.status is EpisodeStatus.FAILED]
    assert "BadContext raised" in failed.error
    assert failed.reward is None


def never_ending(*_):
    yield (Message(Role.SYSTEM, "w2"), Message(Role.USER, "w3"))
    while True:
        yield "w4"


def begins_with_nothing():
    yield ()


def says_a_number():
    yield (Message(Role.SYSTEM, "w2"), Message(Role.USER, "w3"))
    yield 7


def ends_with(value):
    def update():
        yield (Message(Role.SYSTEM, "w2"), Message(Role.USER, "w3"))
        return value

    return update


NONSENSE = {
    "a prepared that is none": ("prepare", lambda: "rules"),
    "a prepared without a state": ("prepare", lambda: SimpleNamespace(system="rules")),
    "a state of another": ("prepare", lambda: Prepared("rules", 7)),
    "a text that is none": ("text", lambda: None),
    "a text of half a surrogate pair": ("text", lambda: "\ud800"),
    "half a surrogate pair": ("prepare", lambda: Prepared("\ud800", TextState("x"))),
    "a huge system text": ("prepare", lambda: Prepared("x" * 1_000_001, TextState("x"))),
    "an update without end": ("update", never_ending),
    "an update that begins with nothing": ("update", begins_with_nothing),
    "an update that is no dialogue": ("update", lambda: 7),
    "an update that begins with a text": ("update", lambda: iter(["w2"])),
    "an update that begins with a role of its own": ("update", lambda: iter([(Message("critic", "w2"),)])),
    "a message that is a number": ("update", says_a_number),
    "a result that is none": ("update", ends_with(None)),
    "a result without a state": ("update", ends_with(SimpleNamespace(reward=0.0, parsed=True, reason=""))),
    "a result with a state of another": ("update", ends_with(ContextUpdate(state="w1", reward=0.0, parsed=True))),
    "a reward that is no number": (
        "update",
        ends_with(ContextUpdate(state=TextState(), reward=float("nan"), parsed=True)),
    ),
    "an intervention that is none": ("on_turn", lambda: "w1"),
    "an intervention without a state": ("on_turn", lambda: SimpleNamespace(reply="w1", action=None)),
    "an action that is a number": ("on_turn", lambda: Intervention(TextState("x"), action=7)),
}


@each("name", NONSENSE)
def test_what_no_mechanism_may_give_is_a_context_failure(name):
    found = groups(mechanism=BadContext(*NONSENSE[name]), num_packs=1)
    assert count_faults(found) == {"ContextFailure": 2}
    assert all(len(e.turns) <= MOST_UPDATE_TURNS + 1 for life in found[0].lifecycles for e in life.episodes)
    if NONSENSE[name][0] in ("prepare", "on_turn"):
        assert [e.kind for e in found[0].lifecycles[0].episodes if e.status is EpisodeStatus.FAILED] == ["solve"]


@each("error", ERRORS)
def test_whatever_an_engine_raises_costs_the_lifecycle_that_asked(error):
    def answer(request):
        if "/1#0." in request.dialogue:
            raise error("on purpose")
        return SAY_W1

    found = groups(engine=FunctionEngine(answer))
    assert count_faults(found) == {"EngineFailure": 1}
    assert others_are_the_same(found)


def test_an_engine_that_is_refused_ends_the_run():
    def answer(request):
        raise EngineRefused("wrong key")

    with pytest.raises(EngineRefused):
        groups(engine=FunctionEngine(answer))


def test_a_mechanism_may_change_its_state_after_a_turn_and_leave_the_answer_to_the_environment():
    class CountingInTask(InTask):
        def on_turn(self, state, response, tokens):
            return Intervention(TextState(f"{state.text} w7".strip()))

    class Counting(PlainContext):
        companions = (CountingInTask, *PlainContext.companions)

    plain, counted = groups(num_packs=1), groups(mechanism=Counting(), num_packs=1)
    one, other = (found[0].lifecycles[0].solves[0] for found in (plain, counted))
    assert [turn.new_ids for turn in other.turns] == [turn.new_ids for turn in one.turns]
    assert (one.context_after, other.context_after) == ("", " ".join(["w7"] * len(other.turns)))


class RecallingInTask(InTask):
    def on_turn(self, state, response, tokens):
        return None if "asked" in state.text else Intervention(TextState(f"{state.text} asked".strip()), "w7 w8")


class Recalling(PlainContext):
    """Answers the first response of every task itself, and counts what its contexts earned."""

    companions = (RecallingInTask, *PlainContext.companions)

    def feedback(self, state, episode):
        return TextState(f"{state.text.replace('asked', '').strip()} earned".strip())


def test_a_mechanism_may_answer_a_turn_in_the_environment_s_place_and_hears_the_reward_of_its_task():
    (group,) = groups(mechanism=Recalling(), num_packs=1, num_tasks=2)
    life = group.lifecycles[0]
    assert [len(solve.turns) for solve in life.solves] == [4, 4], "three turns are the environment's"
    assert life.solves[0].turns[1].observation == "w7 w8"
    assert all(turn.extends for turn in life.solves[0].turns[1:])
    assert (life.solves[0].context_before, life.solves[0].context_after) == ("", "earned")
    assert life.updates[0].context_before == "earned"
    assert not life.failed


class TwoTurns(PlainContext):
    """Asks once more before it is content."""

    def update(self, state, rules, episode, tokens):
        first = yield (Message(Role.SYSTEM, "w2"), Message(Role.USER, "w3"))
        second = yield f"w4 {first.response}"
        return ContextUpdate(state=TextState(f"{first.response} {second.response}"), reward=-0.05, parsed=True)


def test_an_update_of_two_turns_is_one_episode_whose_second_prompt_extends_the_first():
    (group,) = groups(mechanism=TwoTurns(), num_packs=1, num_tasks=2)
    (update,) = group.lifecycles[0].updates
    assert [turn.observation for turn in update.turns] == ["w3", "w4 w1"]
    assert [turn.extends for turn in update.turns] == [False, True]
    assert (update.reward, update.context_after, update.status) == (-0.05, "w1 w1", EpisodeStatus.COMPLETED)
    assert group.lifecycles[0].solves[1].context_before == "w1 w1"


def test_a_person_s_interrupt_still_ends_a_rollout():
    class Interrupted(FunctionEngine):
        async def generate(self, request):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)

    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # shells have what runs in the background ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            play(Interrupted(lambda _: SAY_W1))
    finally:
        signal.signal(signal.SIGINT, before)
