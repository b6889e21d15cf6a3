"""What a hostile OpenEnv server says over HTTP, before any session: it is refused in one line, in little memory and time."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cod_lightning.envs.openenv_world import OpenEnvSession
from cod_lightning.errors import ConfigError

SCHEMA = {"action": {"properties": {"number": {"type": "integer"}}}}
TASKS = {
    "/schema": SCHEMA,
    "/list_environments": ["numbers"],
    "/numbers/splits": [{"name": "train"}],
    "/numbers/num_tasks": {"num_tasks": 2},
    "/numbers/task": {"task": {"hidden": 7}},
}


@pytest.fixture
def served():
    """A function that serves these answers by path, and gives the address."""
    servers = []

    def serve(answers):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = answers[self.path]
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

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
    ],
    ids=["too long", "a list", "texts", "several types", "no object"],
)
def test_a_schema_that_is_none_is_refused_in_one_line(served, schema, said):
    with pytest.raises(ConfigError) as refused:
        OpenEnvSession(served({"/schema": schema}), "number", None)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_tasks_of_the_server_are_listed_with_their_groups(served):
    session = OpenEnvSession(served(TASKS), "number", None)
    assert session.provided_tasks("hidden") == [{"split": "train", "index": n, "hidden": 7} for n in range(2)]
    assert session.provided_tasks(None) == [{"split": "train", "index": n} for n in range(2)]


@pytest.mark.parametrize("number", [10**12, 100_001, "2", None, 2.5])
def test_a_number_of_tasks_that_none_could_read_is_refused(served, number):
    session = OpenEnvSession(served(TASKS | {"/numbers/num_tasks": {"num_tasks": number}}), "number", None)
    with pytest.raises(ConfigError, match="at most are read") as refused:
        session.provided_tasks(None)
    assert "\n" not in str(refused.value)
