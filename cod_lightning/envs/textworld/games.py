"""Games that TextWorld compiles of a house, and the interpreter that plays them.

A game is compiled once and kept in a folder. A process keeps the interpreters of the games that it played last; one that is not
among them is started, and the commands so far are typed again, so that a world's state is only these commands.
"""

import os
import re
import shutil
import threading
import warnings
from collections import OrderedDict
from dataclasses import astuple
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from cod_lightning.cache import cache_folder
from cod_lightning.envs.textworld.houses import HouseSpec, every_action, plans, things_of, world_of
from cod_lightning.files import write_whole

_MOST_INTERPRETERS = 64
_interpreters: "OrderedDict[tuple[str, tuple[str, ...]], Any]" = OrderedDict()
"""By the game, and what was typed in it."""
_lock = threading.Lock()
_whole: dict[tuple[str | None, str], Path] = {}
"""Games whose files this process has looked at, by cache and name."""


class GameText(NamedTuple):
    """What the interpreter shows after a command."""

    text: str
    score: int
    """Of the game, which begins with 0."""
    max_score: int
    won: bool


@lru_cache(maxsize=512)
def names(spec: HouseSpec) -> dict[str, str]:
    """What TextWorld's grammar calls each room and thing of the house."""
    return {name: info.name for name, info in _game(spec, None, 0).infos.items() if info.name}


@lru_cache(maxsize=512)
def _speaker(spec: HouseSpec) -> Any:
    from textworld.generator.inform7 import Inform7Game  # pyright: ignore[reportMissingImports]

    return Inform7Game(_game(spec, None, 0))


def command_of(spec: HouseSpec, action: Any) -> str:
    """How TextWorld spells an action in this house, as in `take apple from table`."""
    return _speaker(spec).gen_commands_from_actions([action])[0]


def commands(spec: HouseSpec, state: Any) -> dict[str, Any]:
    """All that its rules allow in a state, by how it is spelled: the admissible commands of its API."""
    found = every_action(state)
    return dict(zip(_speaker(spec).gen_commands_from_actions(found), found, strict=True))


def compiled(spec: HouseSpec, target: str, most: int) -> Path:
    """The compiled game, made once in the cache, and again if damaged; processes that want the same one wait for each other."""
    from textworld.generator import compile_game  # pyright: ignore[reportMissingImports]
    from textworld.generator.game import GameOptions  # pyright: ignore[reportMissingImports]

    name = "-".join(map(str, (*astuple(spec), target)))
    known = (os.environ.get("COD_LIGHTNING_CACHE"), name)
    if known in _whole and _whole[known].is_file():
        return _whole[known]
    root = cache_folder(f"textworld-{version('textworld')}")  # another version draws other houses
    path = root / f"{name}.z8"
    with filelock.FileLock(root / f"{name}.lock"):
        if not _is_whole(path):
            draft = root / f"{name}.{os.getpid()}"
            draft.mkdir(exist_ok=True)
            options = GameOptions()
            options.path = str(draft / "game.z8")
            try:
                compile_game(_game(spec, target, most), options)
                os.replace(draft / "game.json", path.with_suffix(".json"))
                os.replace(draft / "game.z8", path)
                write_whole(path.with_suffix(".sha256"), _digest(path))
            finally:
                shutil.rmtree(draft)
        _whole[known] = path
    return path


def _is_whole(path: Path) -> bool:
    """Whether the game's files are as they were written; the interpreter ends its process where they are not."""
    try:
        return path.with_suffix(".sha256").read_text("ascii") == _digest(path)
    except (OSError, UnicodeDecodeError):
        return False


def _digest(path: Path) -> str:
    return sha256(path.read_bytes() + path.with_suffix(".json").read_bytes()).hexdigest()


def shown(path: Path, typed: tuple[str, ...]) -> GameText:
    """What the game shows after these commands."""
    if not typed:
        game, state = _started(path)
    else:
        with _lock:
            game = _interpreters.pop((str(path), typed[:-1]), None)
        if game is None:
            game, _ = _started(path)
            for command in typed[:-1]:
                game.step(command)
        state, _, _ = game.step(typed[-1])
    with _lock:
        key = (str(path), typed)
        idle = [_interpreters.pop(key, None)]
        _interpreters[key] = game
        if len(_interpreters) > _MOST_INTERPRETERS:
            idle.append(_interpreters.popitem(last=False)[1])
    for one in filter(None, idle):
        one.close()
    return GameText(_story(state.feedback), int(state["score"]), int(state["max_score"]), bool(state["won"]))


def _story(text: str) -> str:
    """Without the title, the objective (which tells the way) and the status line.

    >>> _story("TITLE Your task: go west.\\n\\n-= Attic =-\\nYou are in an attic.\\n\\n\\n\\n> -= Attic =-0/1")
    '-= Attic =-\\nYou are in an attic.'
    """
    text = text.rpartition("\n>")[0] or text
    title = text.find("-= ")
    return re.sub(r"\n{3,}", "\n\n", text[max(title, 0) :]).strip()


def _started(path: Path) -> tuple[Any, Any]:
    """The interpreter, and what it shows first."""
    from textworld import EnvInfos, start  # pyright: ignore

    with _lock, warnings.catch_warnings():  # these warnings are the process's, not a thread's
        # What jericho says of its own score; TextWorld keeps one.
        warnings.filterwarnings("ignore", message=".*is not fully supported")
        game = start(str(path), EnvInfos(won=True, score=True, max_score=True))
        return game, game.reset()


def _game(spec: HouseSpec, target: str | None, most: int) -> Any:
    """TextWorld's game: the house with the quest for a target."""
    from numpy.random import RandomState
    from textworld.generator import make_grammar  # pyright: ignore[reportMissingImports]
    from textworld.generator.game import Event, Game, Quest  # pyright: ignore[reportMissingImports]

    quests = []
    if target is not None:
        assert target in things_of(spec)
        actions = [deed.action for deed in plans(spec, most)[target]]
        quests = [Quest(win_events=[Event(actions=actions)], desc=f"Take the {names(spec)[target]}.", commands=())]
    grammar = make_grammar({"theme": "house"}, rng=RandomState(spec.things_seed + 1))
    return Game(world_of(spec), grammar, quests)
