"""Environments whose loop is a program's own: it asks the policy at an endpoint, as often as it likes, and ends by itself."""

from abc import abstractmethod
from dataclasses import dataclass

from cod_lightning.envs.base import TextEnv
from cod_lightning.envs.wrapped import innermost

RULES = "What you find out in one task may help with the next: tasks of one series have something in common that nobody states."
"""System text before the context, where a world states none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the program of one task finds the policy; no other process has the key, and it ends with the task."""

    base_url: str
    """As in http://127.0.0.1:40001/v1; the chat dialect of OpenAI is spoken there."""
    key: str
    """Sent as a bearer token."""
    model: str = "policy"


class OwnLoop(TextEnv):
    """A world that plays a task by itself: `reset`, then `play`.

    What the program asks of the policy is recorded in exact ids and trained on. `step` is for players without a program (`play`,
    `check`, references): what they answer is taken for the program's own last word.
    """

    shows_context = False
    """Whether `play` shows the policy the system text; else the endpoint puts it before each request's own."""
    shown: tuple[str, ...] = ()
    """After `play`, where the program asked in token ids: the text that each turn answered, for readers."""

    @abstractmethod
    def play(self, system: str, access: Access) -> tuple[str, float]:
        """Let the program do the task that was begun, and return its feedback and reward; `success` and `status` say the rest.

        It is called in a thread and waits. Raises `EnvironmentFailure`.

        Args:
            system: Rules and context.
            access: Where the policy is.
        """

    @abstractmethod
    def interrupt(self) -> None:
        """Make a `play` that waits in another thread raise soon."""

    def close(self) -> None:
        self.interrupt()


def own_loop(env: TextEnv) -> OwnLoop | None:
    """The world that plays its present task by itself, at the bottom of worlds that delegate; None where steps are made."""
    env = innermost(env)
    return env if isinstance(env, OwnLoop) else None
