"""Environments behind a real OpenEnv server on the loopback: the server of the guide, spoilt versions of it, and one of theirs."""

import copy
import json
import time
from pathlib import Path

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.errors import ConfigError, EnvironmentFailure, WorldHung
from cod_lightning.evaluation.conformance import check_world
from cod_lightning.types import EpisodeStatus, Pack, Split, Task
from examples.hidden_number.hidden_number import HiddenNumber, Secret
from tests.openenv_server import SOURCE, Served

pytest.importorskip("openenv", reason="pip install -e '.[openenv]'")

from cod_lightning.envs.openenv_world import OpenEnvWorld

pytestmark = pytest.mark.slow  # a server takes seconds to start
ALONE = SOURCE.replace("SESSIONS = True", "SESSIONS = False")
TASKS = [{"hidden": number} for number in range(1, 31)]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    server = Served(tmp_path_factory.mktemp("server"))
    yield server
    server.kill()


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(**options):
        servers.append(Served(tmp_path, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def world():
    """Makes environments behind a server, which are closed in the end."""
    envs = []

    def make(server, **more):
        settings = {"action_field": "number", "observation_field": "text", "max_turns": 3, "group_key": "hidden"}
        envs.append(OpenEnvWorld(server.url, TASKS, "Guess a number from 1 to 30.", **{**settings, **more}))
        return envs[-1]

    yield make
    for env in envs:
        env.close()


def begun(env, hidden=20):
    """With the task of this number."""
    drawn = (env.sample_pack(split=split, index=index, num_tasks=1) for split in Split for index in range(500))
    (task,) = next(pack.tasks for pack in drawn if json.loads(pack.tasks[0].spec.options)["hidden"] == hidden)
    env.reset(options={"task": task})


def guess(number):
    return f"I try. <answer>{number}</answer>"


def test_no_rule_of_the_contract_is_broken(served, world):
    found = list(check_world(world(served), HintContext(), num_packs=3, pack_size=2))
    assert {verdict.rule: verdict.broken for verdict in found if verdict.broken} == {}


@pytest.mark.parametrize("answers", [(10, 25, 20), (20,), (1, 2, 3), ("one",)])
def test_the_hidden_number_behind_a_server_is_played_as_it_is_natively(served, world, answers):
    remote, native = world(served), HiddenNumber()
    begun(remote)
    native.reset(options={"task": Task(id="0", seed=0, spec=Secret(20))})
    for answer in answers:
        ours, theirs = remote.step(guess(answer)), native.step(guess(answer))
        assert ours[1] == theirs[1]
        assert (ours[2] or ours[3]) == (theirs[2] or theirs[3])
        assert ours[0] == theirs[0] or remote.status is EpisodeStatus.MALFORMED
    assert remote.success == native.success
    assert (remote.status is EpisodeStatus.MALFORMED) == (native.status is EpisodeStatus.MALFORMED)


def test_siblings_have_sessions_of_their_own_and_a_copy_of_a_task_goes_on_alike(served, world):
    prototype = world(served)
    pack: Pack = prototype.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    first, second = copy.deepcopy(prototype), copy.deepcopy(prototype)
    for env in (first, second):
        env.reset(options={"task": pack.tasks[0]})
    first.step(guess(1))
    twin = copy.deepcopy(first)
    try:
        assert twin.step(guess(2)) == first.step(guess(2)) == second.step(guess(2))
        assert twin.step(guess(30))[2:4] == first.step(guess(30))[2:4] != second.step(guess(30))[2:4]
    finally:
        for env in (first, second, twin):
            env.close()


def test_an_action_is_json_where_no_field_is_named(served, world):
    env = world(served, action_field=None, observation_field=None)
    begun(env)
    shown = env.step('<answer>{"number": 10}</answer>')[0]
    assert json.loads(shown)["text"] == "10 is too low."
    assert env.step('<answer>{"number": "many"}</answer>')[2]
    assert env.status is EpisodeStatus.MALFORMED


@pytest.mark.parametrize(
    ("spoilt", "expected"),
    [
        (SOURCE.replace('"Your first guess?"', "str(object())"), "equal"),
        (ALONE.replace("max_concurrent_envs=256", "max_concurrent_envs=1"), "several sessions"),
    ],
)
def test_a_server_that_cannot_serve_siblings_is_refused(serve, world, spoilt, expected):
    assert spoilt != SOURCE
    with pytest.raises(ConfigError, match=expected):
        world(serve(source=spoilt))


def test_a_server_that_was_started_again_costs_the_lifecycle_and_is_not_mistaken_for_the_same_session(serve, world):
    server = serve()
    env = world(server, timeout_s=10)
    begun(env)
    env.step(guess(1))
    server.kill()
    serve(port=server.port)
    with pytest.raises(EnvironmentFailure):
        env.step(guess(20))
    begun(env)
    assert env.step(guess(20))[:2] == ("20 is right.", 1.0), "the next lifecycle finds the new server"


def test_a_dead_server_raises_at_once_and_a_slow_one_after_its_time(serve, world):
    server = serve(source=SOURCE.replace("        self.turns += 1\n", "        import time; time.sleep(3600)\n"))
    env = world(server, timeout_s=2)
    begun(env)
    start = time.perf_counter()
    with pytest.raises(WorldHung, match="no answer within 2 s"):
        env.step(guess(1))
    assert time.perf_counter() - start < 30
    server.kill()
    with pytest.raises(EnvironmentFailure, match="no session"):
        begun(env)


def test_what_is_no_server_is_named(tmp_path):
    with pytest.raises(ConfigError, match="GET /schema"):
        OpenEnvWorld("http://127.0.0.1:9", TASKS, "rules")


def test_an_environment_of_theirs_is_played(tmp_path):
    import openenv.cli.templates as templates

    source = Path(templates.__file__).parent / "openenv_env"
    for path in source.rglob("*.py"):
        name = str(path.relative_to(source)).replace("__ENV_NAME__", "echo")
        text = path.read_text()
        for old, new in (("__ENV_NAME__", "echo"), ("__ENV_CLASS_NAME__", "Echo"), ("__ENV_TITLE_NAME__", "Echo")):
            text = text.replace(old, new)
        (tmp_path / "echo" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "echo" / name).write_text(text)
    run = (
        "import sys, uvicorn\nfrom openenv.core.env_server import create_fastapi_app\n"
        "from echo.models import EchoAction, EchoObservation\nfrom echo.server.echo_environment import EchoEnvironment\n"
        "app = create_fastapi_app(EchoEnvironment, EchoAction, EchoObservation, max_concurrent_envs=8)\n"
        "uvicorn.run(app, port=int(sys.argv[1]), log_level='warning')\n"
    )
    server = Served(tmp_path, source=run)
    try:
        env = OpenEnvWorld(
            server.url, [{}], "Echo.", "message", "echoed_message", max_turns=2, max_reward=2.0, success_at=1.0
        )
        first, _ = env.reset(seed=0)
        assert first == "Echo environment ready!"
        assert env.step("<answer>hello</answer>")[0] == "hello"
        last = env.step("<answer>0123456789</answer>")
        assert (last[0], last[1], last[3], env.success) == ("0123456789", pytest.approx(1.5), True, True)
        env.close()
    finally:
        server.kill()


def test_every_planted_fault_costs_its_lifecycle_alone_and_none_hangs(tmp_path):
    from examples.studies.robustness.openenv_faults import expected, play

    assert play(tmp_path, 16) == expected(16)
