"""Single-player games of TextArena as worlds; a pack is one game with one seed, played again and again.

Needs the extra `textarena` (MIT). Source: https://github.com/LeonGuertler/TextArena
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium

from cod_lightning.envs.answers import answer_of, quoted
from cod_lightning.envs.base import Stepped, text_space
from cod_lightning.envs.gymnasium_world import GymnasiumWorld
from cod_lightning.envs.question_world import answer_form
from cod_lightning.envs.wrapped import delegated
from cod_lightning.errors import ConfigError, answering
from cod_lightning.extras import require
from cod_lightning.ranges import Count

_RULES = (
    "You play a game for one player. What is hidden in it is the same in all tasks of a series, so what you find out may help the "
    f"next time.\n\n{answer_form('YOUR MOVE')}"
)
_LONGEST = 500
"""Letters of a move."""
_NUM_SEEDS = 1000
"""Seeds 0, 1, ... that packs draw from."""
_GLOBAL = threading.Lock()
"""Held while a game uses Python's global generator."""


class TextArenaGame(gymnasium.Env[str, str]):
    """A game as an environment of gymnasium in text. The option `seed` of `reset` says which.

    TextArena seeds and uses Python's global generator. Each game has its own here: it is put in place for each call.

    Args:
        game: Its id, such as Mastermind-v0.
        settings: Arguments of the game, beside those of its id.
    """

    observation_space = action_space = text_space()

    def __init__(self, game: str, settings: dict[str, Any] | None = None) -> None:
        self.game, self.settings, self.malformed = game, dict(settings or {}), False
        self._random = random.Random(0).getstate()
        self._env: Any = None
        self._shown = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the game with the option `seed`, or with the seed where there is none."""
        import textarena  # pyright: ignore[reportMissingImports]

        self.malformed = False
        with self._generator():
            self._env = textarena.make(f"{self.game}-raw", **self.settings)
            self._env.reset(num_players=1, seed=(options or {}).get("seed", seed or 0))
            self._shown = self._text()
        return self._shown, {}

    def step(self, action: str) -> Stepped:
        """Make the move; one that is not between the tags ends the task."""
        answer, complaint = answer_of(action)
        if complaint or len(answer) > _LONGEST:
            self.malformed = True
            reason = complaint or f"{quoted(answer)} is too long"
            return f"Your answer could not be read: {reason}. The task is over.", 0.0, True, False, {}
        with self._generator():
            done, _ = self._env.step(answer if "[" in answer else f"[{answer}]")
            self._shown = self._text()
            if not done:
                return self._shown, 0.0, False, False, {}
            rewards, info = self._env.close()
        reason = str(info[0].get("reason", "The game is over."))
        said = self._shown if reason in self._shown else f"{self._shown}\n{reason}".strip()
        # of a move that they do not take some games mix up reward and reason
        return said, -1.0 if isinstance(rewards[0], str) else float(rewards[0]), True, False, {}

    def _text(self) -> str:
        """What the game (-1) has said since the last move, without the player's words, of which some games name the kind first."""
        _, messages = self._env.get_observation()
        return "\n".join(text for author, text, _ in messages if author == -1).strip()

    @contextmanager
    def _generator(self) -> Iterator[None]:
        """Python's global generator is this game's own."""
        with _GLOBAL:
            before = random.getstate()
            random.setstate(self._random)
            try:
                yield
            finally:
                self._random = random.getstate()
                random.setstate(before)


class TextArenaWorld(GymnasiumWorld):
    """A single-player game of TextArena. A pack plays it with one seed, so that what is hidden (a code, a map, odds) stays.

    A seed belongs to one split. A game that begins differently with equal seeds is refused. The game's last reward counts.

    Args:
        game: Its id, such as Mastermind-v0 or GuessTheNumber-v0. Games with word lists download them.
        settings: Arguments of the game, such as max_turns, beside those of its id.
        max_turns: Moves per task; the game may end earlier.
        success_at: Reward from which a task counts as solved.
        min_reward: Smallest reward of the game; some give -1 for a second move in a row that they do not take.
        max_reward: Largest reward of the game.
    """

    env: TextArenaGame
    malformed = delegated("env.malformed")

    def __init__(
        self,
        game: str = "Mastermind-v0",
        settings: dict[str, Any] | None = None,
        max_turns: Count = 20,
        success_at: float = 1.0,
        min_reward: float = -1.0,
        max_reward: float = 1.0,
    ) -> None:
        require("textarena", "data.env.game", game)
        played = TextArenaGame(game, settings)
        _check_begins_alike(played, game)
        name = f"textarena-{game}" + "".join(f"-{key}={value}" for key, value in sorted((settings or {}).items()))
        tasks = [{"seed": seed} for seed in range(_NUM_SEEDS)]
        super().__init__(
            played, tasks, _RULES, max_turns, "seed", success_at, min_reward, max_reward, world_name=name
        )  # fmt: skip


def _check_begins_alike(played: TextArenaGame, game: str) -> None:
    """Raise `ConfigError` for a game that does not begin, or not alike with equal seeds."""
    refused = partial(ConfigError, "data.env.game", game, remedy="Choose another; Mastermind-v0 is one.")
    # it may be for several players, have no such setting, or lack its word list
    with answering(refused, "a game of TextArena for one player, with settings that it takes"):
        first, again = (played.reset(options={"seed": 1})[0] for _ in range(2))
    if first != again:
        raise refused("a game that begins alike with equal seeds; tasks of a pack would differ")
