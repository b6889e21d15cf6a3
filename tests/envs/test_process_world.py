"""A world in worker processes: the same episodes, and nothing that it does takes the run down."""

import copy
import inspect
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.envs.base import Proposals, Vocabulary, beside
from cod_lightning.envs.doors import Doors
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.process_world import ProcessWorld
from cod_lightning.envs.ralph_loop import RalphLoop
from cod_lightning.errors import (
    FAULT_LOG,
    ConfigError,
    EnvironmentFailure,
    WorldDied,
    WorldHung,
    WorldOutOfMemory,
)
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.deadlines import Deadlines
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Split
from tests.cases import each
from tests.faulty_worlds import (
    ChildLevers,
    ClosedLevers,
    FaultyLevers,
    GreedyLevers,
    MeetingLevers,
    RudeLevers,
    UndrawnLevers,
)
from tests.forked import alive
from tests.stubs import FunctionEngine

MECHANISM = HintContext(protocol="compact")


def lake():
    return FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, max_shortest_path=6, protocol="compact")


def play(world, num_packs=6, siblings=2, deadlines=Deadlines()):  # noqa: B008
    """Words drawn by the request's own noise, so that siblings differ and a second run does not."""
    chat = Chat(TinyPolicy().tokenizer(beside(world, Vocabulary).words() + beside(MECHANISM, Words).words()))
    words = [chat.encode(word)[0] for word in beside(world, Vocabulary).words()]

    def say(request):
        return (words[request.noise_seed % len(words)], chat.end_of_turn)

    sampler = Sampler(engine=FunctionEngine(say), chat=chat, window=400, max_new_tokens=4, deadlines=deadlines)
    packs = [world.sample_pack(split=Split.TRAIN, index=i, num_tasks=3) for i in range(num_packs)]
    return run_groups(packs, siblings, Setting(env=world, mechanism=MECHANISM, sampler=sampler))


def first_task(world, index=0, position=0):
    return world.sample_pack(split=Split.TRAIN, index=index, num_tasks=3).tasks[position]


def in_worker(world, **limits):
    """In one worker process, with its first task begun."""
    apart = ProcessWorld(world, num_workers=1, **limits)
    apart.reset(options={"task": first_task(apart)})
    return apart


@pytest.mark.slow
@each(
    "make",
    [lake, lambda: Mixture({"a": lake(), "b": Levers(protocol="compact")}), lambda: FaultyLevers(("raises",), 2)],
)
def test_episodes_are_those_of_the_world_in_this_process_bit_for_bit(make):
    assert play(ProcessWorld(make(), num_workers=3)) == play(make())


def test_the_log_of_faults_names_the_line_of_the_world_that_raised_in_a_worker(caplog):
    FAULT_LOG.addHandler(caplog.handler)
    try:
        play(ProcessWorld(FaultyLevers(("raises",), 2), num_workers=1))
    finally:
        FAULT_LOG.removeHandler(caplog.handler)
    assert "In its worker process:" in caplog.text
    assert f'File "{inspect.getsourcefile(FaultyLevers)}", line' in caplog.text


def test_proposals_are_asked_for_and_made_by_the_world_that_the_task_has_begun():
    plain = Mixture({"doors": Doors(protocol="compact"), "levers": Levers(protocol="compact")})
    apart = ProcessWorld(copy.deepcopy(plain), num_workers=1)
    asked = []
    for index in range(6):
        task = first_task(plain, index)
        for world in (plain, apart):
            world.reset(options={"task": task})
            asked.append(
                (
                    beside(world, Proposals).offer,
                    *(beside(world, Proposals).proposed(text, task) for text in ("open=2", "want=red")),
                )
            )
        assert asked[-1] == asked[-2]
    assert {offer for offer, *_ in asked} == {"doors", "levers"}
    apart.close()


@pytest.mark.slow
def test_wrapped_again_or_within_a_mixture_it_is_still_the_same():
    for wrap in (RalphLoop, lambda world: Mixture({"a": world})):
        assert play(wrap(ProcessWorld(lake(), num_workers=2)), num_packs=2) == play(wrap(lake()), num_packs=2)


def test_a_copy_goes_its_own_way_from_the_moment_it_was_made():
    world = in_worker(Levers(protocol="compact"))
    other = copy.deepcopy(world)
    said = world.step("no such answer")
    assert (said[2] or said[3], world.success) == (True, False)
    assert other.step("no such answer") == said
    with pytest.raises(EnvironmentFailure, match="AssertionError: the task is over"):
        world.step("again")


@pytest.mark.slow
@each(("fault", "error"), [("hangs", WorldHung), ("dies", WorldDied), ("raises", EnvironmentFailure)])
def test_who_hangs_or_dies_is_replaced_and_the_next_call_is_served(fault, error):
    world = ProcessWorld(FaultyLevers((fault,), 3), num_workers=1, step_s=0.3)
    healthy = copy.deepcopy(world)
    healthy.reset(options={"task": first_task(world, index=0)})  # the worker is there
    begun = time.perf_counter()
    with pytest.raises(error):  # pack 4 fails where its second task begins
        copy.deepcopy(world).reset(options={"task": first_task(world, index=4, position=1)})
    assert time.perf_counter() - begun < 5
    assert healthy.step("no such answer")[2]


@pytest.mark.slow
def test_who_hangs_over_a_proposal_is_replaced_and_the_next_one_is_made():
    world = in_worker(RudeLevers(protocol="compact"), step_s=0.3)
    task = first_task(world)
    with pytest.raises(WorldHung):
        beside(copy.deepcopy(world), Proposals).proposed("hangs", task)
    made = beside(world, Proposals).proposed("want=red", task)
    assert made is not None
    assert made == beside(Levers(protocol="compact"), Proposals).proposed("want=red", task)


@pytest.mark.slow
def test_who_hangs_over_a_pack_is_replaced_and_what_the_world_refuses_is_said_in_its_own_words():
    world = ProcessWorld(UndrawnLevers(), num_workers=1, step_s=0.3)
    first = first_task(world)
    with pytest.raises(WorldHung):
        first_task(world, index=1)
    with pytest.raises(ConfigError, match=r"^data\.num_packs is 2; expected at most 2\. Lower it\.$"):
        first_task(world, index=2)
    assert first_task(world) == first == first_task(Levers())


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
@pytest.mark.slow
def test_who_takes_too_much_memory_is_named_and_replaced_and_the_next_call_is_served():
    world = in_worker(GreedyLevers(), step_s=60, memory_gb=0.25)
    begun = time.perf_counter()
    for _ in range(2):
        with pytest.raises(WorldOutOfMemory):
            copy.deepcopy(world).step("memory")
    assert time.perf_counter() - begun < 30
    assert world.step("no such answer")[2]


@pytest.mark.slow
@each("own_session", [False, True])
def test_what_a_world_has_started_ends_with_its_worker_and_what_it_prints_is_cleaned(own_session, tmp_path):
    if own_session and not Path("/proc/self/environ").exists():
        pytest.skip("looks at /proc")
    world = in_worker(ChildLevers(str(tmp_path / "child"), own_session), step_s=0.3)
    number, *streams = (tmp_path / "child").read_text().split()
    assert streams == ["CleanStream", "CleanStream"]
    child = int(number)
    os.kill(child, 0)
    with pytest.raises(WorldHung):
        world.step("no such answer")
    until = time.perf_counter() + 10
    while alive(child) and time.perf_counter() < until:
        time.sleep(0.01)
    assert not alive(child)


@pytest.mark.slow
@each("wrap", [lambda world: world, RalphLoop, lambda world: Mixture({"a": world})])
def test_what_the_world_has_open_is_closed_with_it_also_after_a_call_that_hung(tmp_path, wrap):
    file = tmp_path / "closed"
    ProcessWorld(wrap(ClosedLevers(str(file))), num_workers=1).close()
    world = in_worker(wrap(ClosedLevers(str(file))), step_s=0.5)
    world.reset(options={"task": first_task(world)})
    world.close()
    assert file.read_text() == "2 "
    with pytest.raises(WorldHung):
        world.step("no such answer")
    world.close()
    assert file.read_text() == "2 2 "


@pytest.mark.slow
def test_a_deadline_of_the_episode_kills_the_worker_that_is_still_at_it():
    world = ProcessWorld(FaultyLevers(("hangs",), 2), num_workers=2, step_s=60)
    copy.deepcopy(world).reset(options={"task": first_task(world, index=0)})  # a worker is there
    begun = time.perf_counter()
    groups = play(world, num_packs=2, siblings=1, deadlines=Deadlines(episode_s=2))
    assert time.perf_counter() - begun < 20
    assert [[e.fault for e in g.lifecycles[0].episodes if e.fault] for g in groups] == [[], ["EpisodeTimeout"]]


@pytest.mark.slow
def test_calls_of_many_lifecycles_run_side_by_side(tmp_path):
    groups = play(ProcessWorld(MeetingLevers(str(tmp_path)), num_workers=8), num_packs=8, siblings=1)
    assert not any(group.lifecycles[0].failed for group in groups)
    assert len(list(tmp_path.iterdir())) > 1


def test_a_worker_imports_neither_torch_nor_a_model_nor_the_script_of_the_run(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        "import sys; from cod_lightning.envs.process_world import ProcessWorld; from tests.faulty_worlds import Teller; "
        "from cod_lightning.types import Split; world = ProcessWorld(Teller()); "
        "pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=3); "
        "print(world.reset(options={'task': pack.tasks[0]})[0])"
    )
    variables = os.environ | {"PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, script], env=variables, capture_output=True, text=True, timeout=60)
    assert done.stdout == "torch: False, transformers: False\n", done.stderr


def test_a_worker_that_the_system_cannot_end_is_left():
    class Stuck:
        """A process that waits for a disk."""

        pid = 2**30
        stdin = stdout = stderr = None

        def wait(self, timeout=None):
            assert timeout is not None, "it would be waited for for ever"
            raise subprocess.TimeoutExpired("stuck", timeout)

    world = in_worker(Levers(protocol="compact"))
    (worker,) = world._pool._held.all
    real, worker.process = worker.process, Stuck()
    worker.close()
    assert real.wait(10), "its mark ends it where the system can"


def test_no_worker_outlives_its_world():
    world = in_worker(Levers(protocol="compact"))
    (worker,) = world._pool._held.all
    number = worker.process.pid
    del world, worker
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


@pytest.mark.slow
def test_a_forked_child_of_a_process_with_workers_has_workers_of_its_own():
    def plays(world):
        return bool(copy.deepcopy(world).reset(seed=1)[0])

    world = ProcessWorld(Levers(), num_workers=1)
    assert plays(world)
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if plays(world) and plays(ProcessWorld(Levers(), num_workers=1)) else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert plays(world), "the child took the parent's worker down"


def test_what_cannot_be_pickled_is_refused_before_anything_runs():
    world = Levers(protocol="compact")
    world.secret = lambda: 0
    with pytest.raises(ConfigError, match=r"data\.env\.world is Levers"):
        ProcessWorld(world)


def test_what_a_world_does_to_its_worker_reaches_no_other_lifecycle():
    world = in_worker(RudeLevers())
    rude, other = copy.deepcopy(world), copy.deepcopy(world)
    for action in ("forks", "goes elsewhere", "alarms"):
        assert copy.deepcopy(rude).step(action)[2]
        for _ in range(3):
            assert copy.deepcopy(other).step("asks where")[0] == os.getcwd()
    time.sleep(0.4)  # the alarm comes after 0.2 s
    assert other.step("asks where")[0] == os.getcwd()


@pytest.mark.slow
@each(
    ("action", "limits", "error", "said"),
    [
        ("answers by half", {"step_s": 0.5}, WorldHung, "."),
        ("answers with a bomb", {}, EnvironmentFailure, "it showed a Bomb, not a string"),
        ("grows", {"memory_gb": 0.25}, WorldOutOfMemory, "."),
    ],
)
def test_an_answer_by_half_or_of_an_object_and_a_state_that_grows_cost_their_lifecycle_alone(
    action, limits, error, said
):
    world = in_worker(RudeLevers(), **limits)
    with pytest.raises(error, match=said):
        copy.deepcopy(world).step(action)
    assert world.step("asks where")[0]
