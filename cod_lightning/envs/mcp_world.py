"""The tools of any MCP server as an environment: tasks from a file, calls by the policy, reward by checks, an answer or a judge."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.base import Stepped, Tools, Traits
from cod_lightning.envs.dataset.scorers import AnswerScorer, RegexMatch
from cod_lightning.envs.dataset.world import DatasetWorld
from cod_lightning.envs.mcp_session import McpSession, RecordedCall
from cod_lightning.envs.question_world import MOST_LETTERS, Grade, QuestionTask, series_rules
from cod_lightning.envs.tool_calls import STYLES, BadCalls
from cod_lightning.errors import ConfigError, EnvironmentFailure
from cod_lightning.extras import require
from cod_lightning.ranges import Count, Positive

_MOST_CALLS = 20
_RULES = series_rules("tasks, one after the other, and tools to do them with")
_DONE = "\n\nA response without a call ends the task."


class ToolChecks(AnswerScorer):
    """The share of a row's checks that hold when the task has ended.

    A check is `{"called": NAME, "arguments": {...}, "result": REGEX}`: one call of the policy had these arguments, maybe more, and
    showed what the expression matches somewhere; or `{"call": NAME, ...}`: so does a call that is made after the task.
    `arguments` and `result` may be left out.
    """

    form = "YOUR ANSWER"

    def key_of(self, value: Any) -> list[dict[str, Any]]:
        if not isinstance(value, list) or not value:
            raise ValueError("expected a list of checks")
        for check in value:
            known = {"called", "call", "arguments", "result"}
            fits = isinstance(check, dict) and not check.keys() - known and ("called" in check) != ("call" in check)
            if not fits or not isinstance(check.get("arguments", {}), dict):
                raise ValueError(f"{str(check)[:80]} is no check: expected called or call, arguments, result")
            RegexMatch().key_of(check.get("result", "."))
        return value

    def grade(self, answer: str, key: Any) -> Grade:
        raise NotImplementedError("the environment holds the calls")

    def right_answer(self, key: Any) -> None:
        return None

    def share(self, key: Any, made: Sequence[RecordedCall], session: McpSession) -> float:
        """Of the checks that hold. Raises `EnvironmentFailure`."""
        return sum(self._holds(check, made, session) for check in key) / len(key)

    def _holds(self, check: dict[str, Any], made: Sequence[RecordedCall], session: McpSession) -> bool:
        import regex

        wanted, pattern = check.get("arguments", {}), check.get("result", "")
        if "call" in check:
            made = [session.call(check["call"], wanted)]
        try:
            return any(
                one.name == check.get("called", one.name)
                and not one.failed
                and wanted.items() <= {name: one.arguments.get(name) for name in wanted}.items()
                and regex.search(pattern, one.shown, timeout=1.0) is not None
                for one in made
            )
        except TimeoutError as error:
            raise EnvironmentFailure(f"the check {pattern[:60]!r} takes longer than a second") from error


class McpTools(Tools["McpWorld"]):
    """The tools of the server."""

    @property
    def schemas(self) -> Sequence[dict[str, Any]]:
        return self.env._tools

    @property
    def results(self) -> Sequence[str]:
        return self.env._shown


class McpWorld(DatasetWorld):
    """Tasks from a file, done with the tools of an MCP server; each task of each lifecycle has a session of its own.

    The policy's chat template lists the tools. A response with calls is answered by what they show; one without ends the task. A
    server that is lost, silent or breaks its own schema costs the lifecycle; an error of a call is its result.

    Args:
        server: A command with its arguments, which is started for every task (stdio), or an address (streamable HTTP).
        path: A file or folder of tasks, as of `DatasetWorld`.
        scorer: How a task is graded; null: `ToolChecks`. `Unscored` leaves it to a judge in `data.rewards`.
        rules: System text; null says that tasks belong together.
        max_turns: Responses to a task.
        timeout_s: Seconds that a session's beginning, and each call, may take.
        tasks: Further parameters of `DatasetWorld`.
    """

    companions = (McpTools, *DatasetWorld.companions)

    late = "late"

    def __init__(
        self,
        server: list[str] | str,
        path: str,
        scorer: AnswerScorer | None = None,
        rules: str | None = None,
        max_turns: Count = 10,
        timeout_s: Positive = 60.0,
        **tasks: Any,
    ) -> None:
        require("mcp", "data.env.server", server)
        self.server, self.timeout_s = server, timeout_s
        self._session: McpSession | None = None
        self.calls: list[RecordedCall] = []
        """Of the present task, in order."""
        self._shown: list[str] = []
        stated = _RULES if rules is None else rules
        super().__init__(path, scorer=scorer or ToolChecks(), rules=stated, max_turns=max_turns, **tasks)
        self.traits = Traits(blocking=True)
        if isinstance(self.scorer, ToolChecks):
            self._rules = stated + _DONE
        self._tools = _tools_of(server, timeout_s)

    def __deepcopy__(self, memo: dict[int, Any]) -> "McpWorld":
        """The same task with no session: it is begun anew, and the calls are made again, where it is used."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin._session, twin.calls, twin._shown = None, list(self.calls), list(self._shown)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_session": None}

    def __del__(self) -> None:
        """A copy in a worker process is forgotten after each call, and its server with it."""
        if (session := vars(self).get("_session")) is not None:
            with suppress(RuntimeError):  # the interpreter ends, and all servers with it
                session.leave()

    def step(self, action: str) -> Stepped:
        stepped = super().step(action)
        if self._outcome:
            self.close()
            self._shown = []
        return stepped

    def _acted(self, action: str) -> str:
        self._answers += 1
        said, complaint = answer_of(action)
        try:
            calls = STYLES["json"].calls(said) if len(said) <= MOST_LETTERS else []
        except BadCalls:
            calls = []
        self._shown = []
        if not calls:
            self._grade = self._graded(said, complaint)
            return self._outcome_of(self._grade)
        for call in calls[:_MOST_CALLS]:
            self.calls.append(self._connected().call(call.name, call.arguments))
            self._shown.append(("error: " if self.calls[-1].failed else "") + self.calls[-1].shown)
        if self._answers < self.max_turns:
            return ""
        self._grade = self._graded("", "")
        return "win" if self._grade.score >= 1 else "late"

    def _feedback(self) -> str:
        return f"{self._shown[-1]}\nYou have no turns left." if self._shown else super()._feedback()

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _graded(self, answer: str, complaint: str) -> Grade:
        if isinstance(self.scorer, ToolChecks):
            share = self.scorer.share(json.loads(self._task.key), self.calls, self._connected())
            return Grade(share, f"{share:.0%} of the checks hold.", verdict="The task is not done.")
        if complaint := complaint or self._too_long(answer):
            return Grade(0.0, complaint, malformed=True)
        return self.grade(answer, self._task)

    def _start(self, task: QuestionTask) -> None:
        self.close()
        super()._start(task)
        self.calls, self._shown = [], []

    def _observed(self) -> str:
        if self._shown:
            return "\n".join(self._shown)
        return "\n\n".join(filter(None, (self._connected().instructions, self._task.question)))

    def _connected(self) -> McpSession:
        """The session of the task; a copy's is begun here, and led to where the copy was made."""
        if self._session is None:
            self._session = McpSession(self.server, self.timeout_s)
            for made in self.calls:
                if self._session.call(made.name, made.arguments) != made:
                    raise EnvironmentFailure(f"{self._session}: called again, {made.name} shows something else")
        return self._session


def _tools_of(server: list[str] | str, timeout_s: float) -> list[dict[str, Any]]:
    """What the server lists. Raises `ConfigError` where it does not start, or lists nothing."""
    if not server:
        raise ConfigError("data.env.server", server, "a command or an address", "[python, tools.py] is one.")
    try:
        session = McpSession(server, timeout_s)
    except EnvironmentFailure as error:
        remedy = "Start it by hand to see what it says."
        raise ConfigError("data.env.server", server, f"an MCP server ({error})", remedy) from error
    session.close()
    if not session.tools:
        raise ConfigError("data.env.server", server, "a server that has tools", "Choose another one.")
    return session.tools
