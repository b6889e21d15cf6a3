"""Environments behind an OpenEnv server as worlds: one session for each lifecycle.

Needs the extra `openenv` (BSD-3-Clause). Source: https://github.com/meta-pytorch/OpenEnv
"""

import contextlib
import copy
import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium

from cod_lightning.clients.failure import EndpointFailure
from cod_lightning.clients.http import Bounds, ask_once
from cod_lightning.envs.answers import answer_of, quoted
from cod_lightning.envs.base import Stepped, Traits, text_space
from cod_lightning.envs.gymnasium_world import GymnasiumWorld, listed_tasks
from cod_lightning.envs.question_world import answer_form
from cod_lightning.envs.tool_calls import BadCalls, decoded
from cod_lightning.envs.wrapped import delegated
from cod_lightning.errors import ConfigError, EnvironmentFailure, WorldHung, described
from cod_lightning.extras import require
from cod_lightning.ranges import Positive

_LONGEST = 20_000
"""Letters of an answer."""
_MOST_BYTES = 2**22
"""Of an answer over HTTP."""
_NOT_ANSWERED = (EndpointFailure, ValueError, KeyError, AttributeError, TypeError, RecursionError)
_CHECKED = 3
"""Tasks whose first observation has to be the same for equal seeds."""
_READ: dict[str, Callable[[str], Any]] = {"integer": int, "number": float, "string": str}
"""How the text of an answer becomes a field's value, by its type in the schema."""


class _Refused(Exception):
    """The server does not take the action."""


class _Result(NamedTuple):
    """What the server answered."""

    observation: dict[str, Any]
    reward: float
    done: bool


class OpenEnvSession(gymnasium.Env[str, str]):
    """A session of an OpenEnv server as an environment of gymnasium in text. It connects at its first `reset`.

    A copy has no session: it opens one when it is used, and a task that goes on is first played again up to there. A connection
    that was lost raises, since the client would go on in a new session with another task.

    Args:
        base_url: Of the server, such as http://localhost:8000.
        action_field: Field of the action that the text between the answer tags goes into; null: that text is the action, as JSON.
        observation_field: Field of the observation that is shown; null shows all of it, as JSON.
        timeout_s: Seconds that a connection, a `reset` or a `step` may take.
    """

    observation_space = action_space = text_space()

    def __init__(
        self, base_url: str, action_field: str | None, observation_field: str | None, timeout_s: float = 60.0
    ) -> None:
        self.base_url, self.timeout_s = base_url.rstrip("/"), timeout_s
        self.action_field, self.observation_field = action_field, observation_field
        self.schema = self._schema()
        self.malformed = False
        self._client: Any = None
        self._arguments: dict[str, Any] = {}
        self._sent: list[dict[str, Any]] = []
        self._shown = ""

    def __deepcopy__(self, memo: dict[int, Any]) -> "OpenEnvSession":
        twin = copy.copy(self)
        twin._client, twin._sent = None, list(self._sent)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the task whose arguments of `reset` are the options."""
        self.malformed, self._sent, self._arguments = False, [], {"seed": seed, **(options or {})}
        self._shown = self._text(self._reset().observation)
        return self._shown, {}

    def step(self, action: str) -> Stepped:
        """Send the answer; one that cannot be read, or that the server does not take, ends the task."""
        try:
            payload = self._payload(action)
            if self._client is None:
                self._replay()
            result = self._called(lambda: self._client.step(payload))
        except _Refused as refusal:
            self.malformed = True
            return f"Your answer could not be read: {refusal}. The task is over.", 0.0, True, False, {}
        self._sent.append(payload)
        self._shown = self._text(result.observation)
        return self._shown, result.reward, result.done, False, {}

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            try:
                client.close()
            except Exception as error:
                raise EnvironmentFailure(f"{self.base_url}: the session did not close: {described(error)}") from error

    def check(self, tasks: list[dict[str, Any]]) -> None:
        """Raise `ConfigError` unless two sessions at a time see the same for equal seeds, whatever was played before."""
        near, far = copy.deepcopy(self), copy.deepcopy(self)
        try:
            for number, task in enumerate(tasks[:_CHECKED]):
                first, _ = near.reset(seed=number, options=task)
                try:
                    other, _ = far.reset(seed=number, options=task)
                except EnvironmentFailure as error:
                    expected = f"a server that takes several sessions at a time ({error})"
                    remedy = "Set SUPPORTS_CONCURRENT_SESSIONS of its environment, and max_concurrent_envs of its app."
                    raise ConfigError("data.env.base_url", self.base_url, expected, remedy) from error
                far.reset(seed=number + 1, options=tasks[-1])
                for shown in (other, near.reset(seed=number, options=task)[0]):
                    if shown != first:
                        expected = f"equal first observations for equal seeds (not {quoted(first)} and {quoted(shown)})"
                        remedy = "Siblings would get different tasks; let its reset(seed=...) decide all that is drawn."
                        raise ConfigError("data.env.base_url", self.base_url, expected, remedy)
        finally:
            near.close()
            far.close()

    def described_action(self) -> str:
        """How an answer becomes an action, for the rules."""
        fields = {name: one for name, one in self.schema.get("properties", {}).items() if name != "metadata"}
        if self.action_field is not None:
            one = fields[self.action_field]
            about = one.get("description", "")
            return f"{about}\n\n{answer_form(self.action_field.upper())}".strip()
        needed = set(self.schema.get("required", ()))
        lines = [
            f"- {name} ({one.get('type', 'any')}{'' if name in needed else ', optional'}): {one.get('description', '')}"
            for name, one in fields.items()
        ]
        return "An action is a JSON object:\n" + "\n".join(lines) + "\n\n" + answer_form("JSON")

    def _schema(self) -> dict[str, Any]:
        remedy = "Start the server first, and give its address without a path."
        try:
            bounds = Bounds("", self.timeout_s, _MOST_BYTES)
            found = json.loads(ask_once("GET", f"{self.base_url}/schema", b"", bounds))["action"]
            fields = found.get("properties", {})
            if not all(isinstance(one, dict) for one in fields.values()):
                raise ValueError("its properties are no objects")
            set(found.get("required", ()))
        except _NOT_ANSWERED as error:
            expected = f"an OpenEnv server with GET /schema ({described(error)})"
            raise ConfigError("data.env.base_url", self.base_url, expected, remedy) from error
        if self.action_field is not None and str(fields.get(self.action_field, {}).get("type")) not in _READ:
            expected = f"a field of the action that is a text or a number; it has {', '.join(fields) or 'none'}"
            raise ConfigError("data.env.action_field", self.action_field, expected, "Null takes JSON.")
        return found

    def _payload(self, action: str) -> dict[str, Any]:
        """The action. Raises `_Refused` for an answer that is none."""
        answer, complaint = answer_of(action)
        if complaint or len(answer) > _LONGEST:
            raise _Refused(complaint or f"the answer has more than {_LONGEST:,} letters")
        if self.action_field is not None:
            kind = self.schema["properties"][self.action_field]["type"]
            try:
                value = _READ[kind](answer)
                if isinstance(value, float) and not math.isfinite(value):
                    raise ValueError
            except ValueError:
                raise _Refused(f"{quoted(answer)} is no {kind}") from None
            return {self.action_field: value}
        try:
            return decoded(answer, dict[str, Any])
        except BadCalls:
            raise _Refused(f"{quoted(answer)} is no JSON object") from None

    def _text(self, observation: Mapping[str, Any]) -> str:
        """What is shown of an observation."""
        if self.observation_field is None:
            return json.dumps(observation, sort_keys=True, ensure_ascii=False)
        if self.observation_field not in observation:
            has = ", ".join(map(str, observation)) or "none"
            raise EnvironmentFailure(
                f"{self.base_url}: the observation has no field {self.observation_field}; it has {has}"
            )
        shown = observation[self.observation_field]
        return shown if isinstance(shown, str) else json.dumps(shown, sort_keys=True, ensure_ascii=False)

    def _reset(self) -> _Result:
        if self._client is None:
            from openenv.core import GenericEnvClient  # pyright: ignore[reportMissingImports]

            client = GenericEnvClient(
                base_url=self.base_url, connect_timeout_s=self.timeout_s, message_timeout_s=self.timeout_s
            )
            self._client = client.sync()
            try:
                self._client.connect()
            except Exception as error:
                self._drop()
                raise EnvironmentFailure(f"{self.base_url}: no session: {described(error)}") from error
        try:
            return self._called(lambda: self._client.reset(**self._arguments))
        except _Refused as refusal:
            raise EnvironmentFailure(f"{self.base_url}: it does not take the task: {refusal}") from refusal

    def _replay(self) -> None:
        """Play the task again in a session of its own, up to where this copy was made."""
        result = self._reset()
        for payload in self._sent:
            result = self._called(lambda payload=payload: self._client.step(payload))
        if self._text(result.observation) != self._shown:
            raise EnvironmentFailure(f"{self.base_url}: played again with the same seed, the task went another way")

    def _called(self, call: Callable[[], Any]) -> _Result:
        """What the session answers. Raises `_Refused` for an action that it does not take, else `EnvironmentFailure`."""
        socket = self._socket()
        try:
            answer = call()
        except TimeoutError:
            self._drop()
            raise WorldHung(f"{self.base_url}: no answer within {self.timeout_s:g} s") from None
        except Exception as error:
            if isinstance(error, RuntimeError) and "(code: VALIDATION_ERROR)" in str(error):
                raise _Refused("the environment does not take this action") from None
            self._drop()
            raise EnvironmentFailure(f"{self.base_url}: {described(error)}") from error
        if socket is None or self._socket() is not socket:
            self._drop()
            raise EnvironmentFailure(f"{self.base_url}: the connection was lost")
        observation, reward, done = answer.observation, answer.reward, answer.done
        reward = 0.0 if reward is None else reward
        is_number = isinstance(reward, int | float) and abs(reward) <= sys.float_info.max  # JSON has longer ones
        if not isinstance(observation, dict) or not is_number or not isinstance(done, bool):
            kinds = ", ".join(type(one).__name__ for one in (observation, reward, done))
            self._drop()
            expected = "expected an object, a finite number, and true or false"
            raise EnvironmentFailure(f"{self.base_url}: observation, reward and done are {kinds}; {expected}")
        return _Result(observation, float(reward), done)

    def _socket(self) -> Any:
        """The connection; the client opens another one by itself where this was closed."""
        return self._client.async_client._ws

    def _drop(self) -> None:
        """Leave a session that is of no use any more."""
        with contextlib.suppress(EnvironmentFailure):
            self.close()


class OpenEnvWorld(GymnasiumWorld):
    """An environment behind an OpenEnv server; a task is the arguments of its `reset`, beside a seed.

    Siblings get the same seed, each in a session of its own. A server that gives other first observations for equal seeds, or takes
    one session only, is refused before anything runs. Rewards of all steps of a task are summed. A connection that is lost, or
    hangs, costs its lifecycle.

    Args:
        base_url: Of the server, such as http://localhost:8000.
        tasks: Arguments of `reset`, or the path of a JSON Lines file of them.
        rules: System text: what the world is. How to answer is added from the server's schema of actions.
        action_field: Field of the action that the text between the answer tags goes into; null: that text is the action, as JSON.
        observation_field: Field of the observation that is shown; null shows all of it, as JSON.
        timeout_s: Seconds that a connection, a `reset` or a `step` may take.
        world_name: Short identity, part of every pack id.
        world: Further parameters of `GymnasiumWorld`; `sum_rewards` is true.
    """

    traits = Traits(blocking=True)
    env: OpenEnvSession
    malformed = delegated("env.malformed")

    def __init__(
        self,
        base_url: str,
        tasks: list[dict[str, Any]] | str,
        rules: str,
        action_field: str | None = None,
        observation_field: str | None = None,
        timeout_s: Positive = 60.0,
        world_name: str = "openenv",
        **world: Any,
    ) -> None:
        require("openenv", "data.env.base_url", base_url)
        session = OpenEnvSession(base_url, action_field, observation_field, timeout_s)
        listed = listed_tasks(tasks)
        stated = f"{rules}\n\n{session.described_action()}"
        super().__init__(session, listed, stated, sum_rewards=True, world_name=world_name, **world)
        session.check(listed)
