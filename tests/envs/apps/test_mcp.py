"""The apps over MCP: a client's session, and messages that no client sends."""

import json
import re
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.mcp import McpServer
from cod_lightning.envs.apps.tasks import play
from cod_lightning.types import Split
from tests.command_line import ROOT


def served(num_tasks=2, **options):
    env = Apps(**{"actions": "json", "quirks": 5, "max_turns": 200, **options})
    return McpServer(env, env.sample_pack(split=Split.TEST, index=0, num_tasks=num_tasks))


def ask(server, method, /, **parameters):
    return json.loads(server.answer(json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": parameters})))


def call(server, name, /, **arguments):
    result = ask(server, "tools/call", name=name, arguments=arguments)["result"]
    return result["content"][0]["text"], result["isError"]


def test_a_client_learns_what_it_is_about_and_what_tools_there_are():
    server = served()
    begun = ask(
        server, "initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo={"name": "x", "version": "1"}
    )
    assert begun["id"] == 7
    assert begun["result"]["protocolVersion"] == "2025-03-26"
    assert "Task: " in begun["result"]["instructions"]
    assert "<answer>" not in begun["result"]["instructions"]
    assert server.answer('{"jsonrpc": "2.0", "method": "notifications/initialized"}') is None
    assert ask(server, "ping")["result"] == {}
    tools = ask(server, "tools/list")["result"]["tools"]
    assert len(tools) >= 130
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool["name"]) for tool in tools)
    assert len({tool["name"] for tool in tools}) == len(tools)
    by_name = {tool["name"]: tool for tool in tools}
    assert by_name["mail_send"]["inputSchema"]["required"] == ["to", "subject", "body", "token"]
    assert by_name["calendar_create"]["inputSchema"]["properties"]["minutes"] == {"type": "integer"}
    assert by_name["calendar_create"]["inputSchema"]["properties"]["guests"]["type"] == "array"
    assert f"mail_{server.pack.tasks[0].spec.facts.moved}" in by_name


def test_an_agent_that_knows_plays_all_tasks_over_the_protocol():
    server = served(num_tasks=4)

    class AppSite:
        """What `play` plays on."""

        finished, shown = False, ""

        def begin_turn(self):
            pass

        def call(self, name, arguments):
            self.shown, failed = call(server, name.replace(".", "_", 1), **arguments)
            assert not failed
            self.finished = name == "user.done"
            return json.loads(self.shown.splitlines()[0]) if not self.finished else None

    for n, task in enumerate(server.pack.tasks):
        site = AppSite()
        play(site, task.spec.plan(task.spec.facts))
        assert "Reward: " in site.shown
        assert ("The next task:" in site.shown) == (n < 3)
    assert min(server.rewards) >= 0.9
    assert call(server, "user_apps") == ("All tasks are done.", True)
    assert ask(server, "tools/list")["result"]["tools"]


def test_what_goes_wrong_in_a_call_is_a_result_and_what_is_no_call_is_an_error():
    server = served()
    assert call(server, "mail_list")[1]
    assert "error 404" in call(server, "nothing")[0]
    for parameters in ({}, {"name": 3}, {"name": "mail_list", "arguments": []}):
        assert ask(server, "tools/call", **parameters)["error"]["code"] == -32602
    assert ask(server, "resources/list")["error"]["code"] == -32601
    for line, code in (("{", -32700), ("[]", -32600), ('{"id": 1}', -32600), ('{"id": [1], "method": "ping"}', -32600)):
        assert json.loads(server.answer(line))["error"]["code"] == code
    assert json.loads(server.answer("[" * 100_001))["error"]["code"] == -32600
    assert json.loads(server.answer("[" * 50_000))["error"]["code"] == -32700


def test_no_argument_ends_the_answer():
    server = served()
    assert "404" in call(server, "user_docs", app="</answer>")[0]
    assert server.position == 0


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)
NAMES = st.one_of(
    st.sampled_from(["mail_send", "user_done", "user_ask", "shop_checkout", "__", "</answer>"]), st.text(max_size=9)
)


@given(
    st.lists(
        st.fixed_dictionaries({"name": NAMES, "arguments": st.dictionaries(st.text(max_size=8), JSON)}), max_size=6
    )
)
def test_any_call_is_answered(calls):
    server = served()
    for one in calls:
        assert ask(server, "tools/call", **one)["result"]["content"][0]["type"] == "text"


def test_the_command_serves_on_standard_streams():
    lines = [{"jsonrpc": "2.0", "id": n, "method": m} for n, m in enumerate(("initialize", "tools/list"))]
    done = subprocess.run(
        [sys.executable, "-m", "cod_lightning.envs.apps.mcp", "--num_tasks", "1"],
        input="\n".join([*map(json.dumps, lines), ""]), capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["result"]["serverInfo"]["name"] == "cod_lightning apps"
    assert second["result"]["tools"]
