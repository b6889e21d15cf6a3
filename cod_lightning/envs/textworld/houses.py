"""Houses as TextWorld generates them, what can be sought in them, and games compiled from that.

All functions are pure: the same house for the same seed, and Python's and NumPy's global generators stay as they were.
Source: https://github.com/microsoft/TextWorld
"""

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import filelock

from cod_lightning.envs.unchanging import Unchanging

_PORTABLE = ("f", "o")
_HOLDERS = ("c", "s")
_WAYS = ("go/east", "go/north", "go/south", "go/west", "open/c", "open/d")
_TAKES = ("take", "take/c", "take/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class HouseSpec(Unchanging):
    """What a house is generated from."""

    seed: int
    num_rooms: int
    num_objects: int


@lru_cache(maxsize=512)
def world_of(spec: HouseSpec) -> Any:
    """TextWorld's own world: rooms, doors, things and where they are, and where the player begins.

    A third of the objects are containers and supporters, the rest lie in rooms, in or on them. No door is locked.
    """
    from numpy.random import RandomState
    from textworld.generator import World, make_map
    from textworld.logic import Variable

    walls, things = RandomState(spec.seed), RandomState(spec.seed + 1)
    world = World.from_map(make_map(spec.num_rooms, rng=walls, possible_door_states=["open", "closed"]))
    world.set_player_room(world.rooms[0].id)
    kinds = [str(things.choice(_HOLDERS if n % 3 == 0 else _PORTABLE)) for n in range(spec.num_objects)]
    objects = [Variable(f"{kind}_{kinds[:n].count(kind)}", kind) for n, kind in enumerate(kinds)]
    world.populate_with([objects[n] for n in things.permutation(len(objects))], rng=things)
    return world


def is_locked(spec: HouseSpec) -> bool:
    """Whether a container of the house is locked."""
    return any(fact.name == "locked" for fact in world_of(spec).state.facts)


def signature(spec: HouseSpec) -> str:
    """All that holds in the house at the beginning, as text: its identity."""
    return " ".join(sorted(map(str, world_of(spec).state.facts)))


def applicable(state: Any, rules: Iterable[str]) -> list[Any]:
    """What the rules of these names allow in a state, in a fixed order."""
    base = _knowledge()
    named = [base.rules[name] for name in rules]
    return sorted(state.all_applicable_actions(named, base.types.constants_mapping), key=str)


def steps(state: Any) -> list[Any]:
    """Ways to go, things to open, and things to take."""
    return applicable(state, (*_WAYS, *_TAKES))


@cache
def _knowledge() -> Any:
    from textworld.generator.data import KnowledgeBase

    return KnowledgeBase.default()


def named(action: Any, kind: str) -> str | None:
    """The variable of that kind (`t` for anything that can be taken) in an action, if any."""
    kinds = _PORTABLE if kind == "t" else (kind,)
    return next((v.name for v in action.variables if v.type in kinds), None)


@lru_cache(maxsize=512)
def targets(spec: HouseSpec, least: int, most: int) -> tuple[str, ...]:
    """Things whose shortest plan has least..most commands, the last of which takes them."""
    found = ((target, len(actions)) for target, actions in _shortest(spec, most).items())
    return tuple(target for target, length in found if least <= length <= most)


@lru_cache(maxsize=512)
def _shortest(spec: HouseSpec, most: int) -> dict[str, tuple[Any, ...]]:
    """The fewest actions that take each thing, of at most so many; breadth first."""
    start = world_of(spec).state
    found: dict[str, tuple[Any, ...]] = {}
    seen, queue = {frozenset(start.facts)}, deque([(start, ())])
    while queue:
        state, before = queue.popleft()
        if len(before) == most:
            continue
        for action in steps(state):
            taken = named(action, "t") if action.name in _TAKES else None
            if taken is not None:
                found.setdefault(taken, (*before, action))
                continue
            after = state.copy()
            after.apply(action)
            if (facts := frozenset(after.facts)) not in seen:
                seen.add(facts)
                queue.append((after, (*before, action)))
    return dict(sorted(found.items()))


@lru_cache(maxsize=2048)
def actions_to(spec: HouseSpec, target: str, most: int) -> tuple[Any, ...]:
    """The fewest actions that take the target."""
    return _shortest(spec, most)[target]


@lru_cache(maxsize=512)
def names(spec: HouseSpec) -> dict[str, str]:
    """What TextWorld's grammar calls each variable of the house."""
    return {name: info.name for name, info in _game(spec, None, 0).infos.items() if info.name}


def _game(spec: HouseSpec, target: str | None, most: int) -> Any:
    """TextWorld's game: the house with the quest for a target."""
    from numpy.random import RandomState
    from textworld.generator import make_grammar
    from textworld.generator.game import Event, Game, Quest

    quests = []
    if target is not None:
        wanted = f"Find the {names(spec)[target]} and take it."
        quests = [Quest(win_events=[Event(actions=actions_to(spec, target, most))], desc=wanted, commands=())]
    grammar = make_grammar({"theme": "house"}, rng=RandomState(spec.seed + 2))
    return Game(world_of(spec), grammar, quests)


def compiled(spec: HouseSpec, target: str, most: int, folder: Path) -> Path:
    """The compiled game, made once in the folder; processes that want the same one wait for each other."""
    from textworld.generator import compile_game
    from textworld.generator.game import GameOptions

    name = f"house-{spec.seed}-{spec.num_rooms}-{spec.num_objects}-{target}-{most}"
    path = folder / f"{name}.z8"
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder / f"{name}.lock"):
        if not path.is_file():
            draft = folder / f"{name}.{os.getpid()}"
            draft.mkdir(exist_ok=True)
            options = GameOptions()
            options.path = str(draft / "game.z8")
            compile_game(_game(spec, target, most), options)
            os.replace(draft / "game.json", path.with_suffix(".json"))
            os.replace(draft / "game.z8", path)
            for left in draft.iterdir():
                left.unlink()
            draft.rmdir()
    return path

