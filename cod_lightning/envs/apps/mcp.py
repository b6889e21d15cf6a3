"""The apps as a server of the Model Context Protocol: any MCP client is the agent of one lifecycle.

    python -m cod_lightning.envs.apps.mcp --index 3 --num_tasks 4 --quirks 2

Messages are lines of JSON-RPC on standard input and output (the protocol's stdio transport, tools alone). Each call of a tool is a
turn; `user_done` gives the person's words, the reward and the next task. What the site hides stays hidden: tools are those that
are documented, and those that are really there.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cod_lightning import __version__
from cod_lightning.envs.apps.api import Endpoint
from cod_lightning.envs.apps.tasks import AppsTask
from cod_lightning.envs.apps.world import Apps
from cod_lightning.envs.tool_calls import STYLES, ToolCall
from cod_lightning.types import Pack, Split

VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
"""Of the protocol, newest first."""
MOST_LETTERS = 100_000


class McpError(Exception):
    """An error of JSON-RPC, by its code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class McpServer:
    """Answers messages; plays the tasks of a pack one after another.

    Args:
        env: Apps with `actions="json"`.
        pack: One of its packs.
    """

    def __init__(self, env: Apps, pack: Pack) -> None:
        assert env.form == "json", 'expected Apps(actions="json")'
        self.env, self.pack, self.position, self.rewards = env, pack, 0, list[float]()
        self.style, self.seen = STYLES["json"], env.reset(options={"task": pack.tasks[0]})[0]

    def answer(self, line: str) -> str | None:
        """The answer to one line; None for what wants none. Never raises."""
        number: Any = None
        try:
            if len(line) > MOST_LETTERS:
                raise McpError(-32600, "the message is too long")
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                raise McpError(-32700, "the message is no JSON") from None
            if not isinstance(message, dict) or not isinstance(message.get("method"), str):
                raise McpError(-32600, "the message is no request")
            number = message.get("id")
            if number is None:
                return None
            if not isinstance(number, (str, int)):
                number = None
                raise McpError(-32600, "an id is text or a whole number")
            parameters = message.get("params", {})
            if not isinstance(parameters, dict):
                raise McpError(-32602, "params is no object")
            return json.dumps({"jsonrpc": "2.0", "id": number, "result": self._result(message["method"], parameters)})
        except McpError as error:
            return json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": error.code, "message": str(error)}})

    def _result(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            asked = parameters.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "cod_lightning apps", "version": __version__},
                "instructions": f"{self.env.rules.partition(chr(10) * 2 + 'You have')[0]}\n\n{self.seen}",
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": self._tools()}
        if method == "tools/call":
            return self._called(parameters)
        raise McpError(-32601, "there is no such method")

    def _tools(self) -> list[dict[str, Any]]:
        task = self.pack.tasks[self.position - self._over].spec
        assert isinstance(task, AppsTask)
        tools: list[dict[str, Any]] = []
        for app in self.env.site.apps:
            for endpoint in app.endpoints.values():
                tools.append(_tool(endpoint, endpoint.name))
                if endpoint.name == "login" and task.facts.moved:
                    tools.append(_tool(endpoint, task.facts.moved))
        return tools

    @property
    def _over(self) -> bool:
        """Whether all tasks are done."""
        return self.position == len(self.pack)

    def _called(self, parameters: dict[str, Any]) -> dict[str, Any]:
        name, arguments = parameters.get("name"), parameters.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise McpError(-32602, "a call has a name and an object of arguments")
        if self._over:
            return _shown("All tasks are done.", error=True)
        call = ToolCall(name.replace("_", ".", 1), arguments)
        spelled = self.style.spelled([call]).replace("<", "\\u003c")  # no argument can end the answer
        seen, reward, terminated, truncated, _ = self.env.step(f"<answer>{spelled}</answer>")
        failed = seen.startswith(("error ", "refused: "))
        if terminated or truncated:
            self.rewards.append(reward)
            self.position += 1
            seen = f"{seen}\nReward: {reward:.3f}."
            if not self._over:
                self.seen = self.env.reset(options={"task": self.pack.tasks[self.position]})[0]
            seen += "\nAll tasks are done." if self._over else f"\nThe next task:\n{self.seen}"
        return _shown(seen, error=failed)


def _shown(text: str, *, error: bool) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": error}


def _tool(endpoint: Endpoint, name: str) -> dict[str, Any]:
    """One tool, under a name of letters and underscores, as all clients take it."""
    return {"name": f"{endpoint.app}_{name}", "description": endpoint.about, "inputSchema": endpoint.schema}


def main(argv: Sequence[str] | None = None) -> int:
    """Serve one pack until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--index", type=int, default=0, help="Which pack.")
    parser.add_argument("--num_tasks", type=int, default=4, help="Tasks of the pack.")
    parser.add_argument("--only", type=int, default=None, help="Serve this task of the pack alone, from 0.")
    parser.add_argument("--split", type=Split, default=Split.TEST, help="Share of the packs.")
    parser.add_argument("--quirks", type=int, default=2, help="Unusual ways of the site, 0 to 5.")
    parser.add_argument("--spare_calls", type=int, default=8, help="Calls beyond those that informed play takes.")
    options = parser.parse_args(argv)
    env = Apps(actions="json", quirks=options.quirks, spare_calls=options.spare_calls, max_turns=200)
    pack = env.sample_pack(split=options.split, index=options.index, num_tasks=options.num_tasks)
    server = McpServer(env, pack if options.only is None else replace(pack, tasks=(pack.tasks[options.only],)))
    for line in sys.stdin:
        if line.strip() and (answer := server.answer(line)) is not None:
            print(answer, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
