"""What a hostile OpenEnv server says over HTTP, before any session: it is refused in one line, in little memory and time."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from cod_lightning.envs.openenv_world import OpenEnvSession
from cod_lightning.errors import ConfigError, EnvironmentFailure


@pytest.fixture
def served():
    """A function that serves these answers by path, and gives the address."""
    servers = []

    def serve(answers):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                answer = answers[self.path]
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format, *args):
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (" " * 2**23, "more than 4,194,304 bytes"),
        ({"action": {"properties": []}}, "GET /schema (AttributeError"),
        ({"action": {"properties": {"number": "integer"}}}, "its properties are no objects"),
        ({"action": {"properties": {"number": {"type": ["integer", "null"]}}}}, "a text or a number"),
        ([], "GET /schema (TypeError"),
        ({"action": {"required": 5, "properties": {"number": {"type": "integer"}}}}, "GET /schema (TypeError"),
    ],
    ids=["too long", "a list", "texts", "several types", "no object", "a number required"],
)
def test_a_schema_that_is_none_is_refused_in_one_line(served, schema, said):
    with pytest.raises(ConfigError) as refused:
        OpenEnvSession(served({"/schema": schema}), "number", None)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "value",
    ["[" * 300 + "]" * 300, '{"a":' * 300 + "0" + "}" * 300, r'"\ud800"', "NaN", "1e999"],
    ids=["lists", "objects", "half a pair", "no number", "infinity"],
)
def test_an_action_that_no_server_can_be_sent_is_refused_and_no_fault_of_the_server(served, value):
    session = OpenEnvSession(served({"/schema": {"action": {"properties": {}}}}), None, None)
    assert session._payload('<answer>{"a": "[[[", "b": [[1]]}</answer>') == {"a": "[[[", "b": [[1]]}
    said, reward, over, *_ = session.step(f'<answer>{{"a": {value}}}</answer>')
    assert "is no JSON object" in said
    assert (reward, over, session.malformed) == (0.0, True, True)


@pytest.mark.parametrize("reward", [10**400, float("nan"), "1"])
def test_a_reward_that_is_no_finite_number_costs_the_lifecycle(served, reward):
    session = OpenEnvSession(served({"/schema": {"action": {}}}), None, None)
    answer = SimpleNamespace(observation={}, reward=reward, done=False)
    connection = SimpleNamespace(_ws=object())
    session._client = SimpleNamespace(reset=lambda **_: answer, async_client=connection, close=lambda: None)
    with pytest.raises(EnvironmentFailure, match="a finite number"):
        session.reset(seed=1)
    assert session._client is None
