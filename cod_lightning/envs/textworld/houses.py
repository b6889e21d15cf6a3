"""Houses as TextWorld generates them, and what can be done in them by TextWorld's own rules.

All functions are pure: the same house for the same spec; Python's and NumPy's global generators stay as they were. A state is
TextWorld's `State` and is never changed once it is made.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, NamedTuple

from cod_lightning.envs.base import Unchanging

DIRECTIONS = ("north", "east", "south", "west")
HERE = "here"
"""The route to the room in which a task begins."""
_KINDS, _HOLDERS = ("f", "o"), ("c", "s")
_RULES = {
    "go": ("go/north", "go/east", "go/south", "go/west"),
    "open": ("open/c", "open/d"),
    "take": ("take", "take/c", "take/s"),
    "unlock": ("unlock/c", "unlock/d"),
}
MOST_STATES = 3_000
"""That are looked at for the shortest plans of a house; what needs more is no target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HouseSpec(Unchanging):
    """What a house is generated from."""

    map_seed: int
    things_seed: int
    layout: str
    """`hub`: one room connects to all others (TextWorld's small map); `grid`: a random map."""
    doors: str
    """`none`, `closed` (open or closed) or `locked` (these, or locked, with a key somewhere); half of the passages have one."""
    num_rooms: int
    num_things: int
    """Food and other things, which are what is sought."""
    num_holders: int
    """Containers and supporters, in or on which things may lie."""


class Deed(NamedTuple):
    """Something that can be done in a state."""

    verb: str
    """go, open, take or unlock."""
    what: str
    """A direction (of a way or a door), or the variable of a container or a thing, as in `c_0`."""
    action: Any
    """TextWorld's."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """A state, equal to every other of the same facts."""

    facts: frozenset[Any]
    state: Any = field(compare=False)


@lru_cache(maxsize=1024)
def world_of(spec: HouseSpec) -> Any:
    """TextWorld's own world: rooms, doors, things and where they are; the player is in `r_0`."""
    from networkx import set_edge_attributes  # pyright: ignore[reportMissingImports]
    from numpy.random import RandomState
    from textworld.generator import World, make_map, make_small_map  # pyright: ignore[reportMissingImports]
    from textworld.logic import Proposition, Variable  # pyright: ignore[reportMissingImports]

    walls, things = RandomState(spec.map_seed), RandomState(spec.things_seed)
    states = {"none": ["open"], "closed": ["open", "closed"], "locked": ["open", "closed", "locked"]}[spec.doors]
    make = make_small_map if spec.layout == "hub" else make_map
    rooms = make(spec.num_rooms, rng=walls, possible_door_states=states)
    if spec.doors == "none":
        set_edge_attributes(rooms, {passage: {"has_door": False} for passage in rooms.edges})
    world = World.from_map(rooms)
    world.set_player_room("r_0")
    kinds = [_KINDS[n % 2] for n in range(spec.num_things)] + [_HOLDERS[n % 2] for n in range(spec.num_holders)]
    objects = [Variable(f"{kind}_{kinds[:n].count(kind)}", kind) for n, kind in enumerate(kinds)]
    world.populate_with([objects[n] for n in things.permutation(len(objects))], rng=things)
    locked = sorted((fact.arguments[0] for fact in world.state.facts if fact.name == "locked"), key=str)
    for n, what in enumerate(locked if spec.doors == "locked" else []):
        key, room = Variable(f"k_{n}", "k"), world.rooms[things.randint(len(world.rooms))]
        world.add_facts([Proposition("match", [key, what]), Proposition("at", [key, room])])
    return world


@lru_cache(maxsize=1024)
def fits(spec: HouseSpec) -> bool:
    """Whether nothing is locked for good."""
    facts = list(world_of(spec).state.facts)
    locked = {fact.arguments[0].name for fact in facts if fact.name == "locked"}
    return locked <= {fact.arguments[1].name for fact in facts if fact.name == "match"}


def deeds(state: Any) -> tuple[Deed, ...]:
    """Ways to go, things to open, take and unlock, in a fixed order; siblings ask this of the same states again and again."""
    return _deeds(_Facts(frozenset(state.facts), state))


@lru_cache(maxsize=8192)
def _deeds(facts: "_Facts") -> tuple[Deed, ...]:
    state, base = facts.state, _knowledge()
    here = room_of(state)
    found = []
    for verb, names in _RULES.items():
        rules = [base.rules[name] for name in names]
        for action in state.all_applicable_actions(rules, base.types.constants_mapping):
            by_kind: dict[str, str] = {variable.type: variable.name for variable in action.variables}
            if verb == "go":
                what = action.name.removeprefix("go/")
            elif verb == "take":
                what = next(name for kind, name in by_kind.items() if kind in "fok")
            elif action.name.endswith("/d"):
                rooms = [variable.name for variable in action.variables if variable.type == "r"]
                what = _direction(state, here, next(room for room in rooms if room != here))
            else:
                what = by_kind["c"]
            found.append(Deed(verb, what, action))
    return tuple(sorted(found, key=lambda deed: (list(_RULES).index(deed.verb), deed.what, str(deed.action))))


def every_action(state: Any) -> list[Any]:
    """All that TextWorld's rules allow, such as to drop or to close something, too."""
    base = _knowledge()
    return list(state.all_applicable_actions(base.rules.values(), base.types.constants_mapping))


def after(state: Any, action: Any) -> Any:
    """The state that the action leads to."""
    following = state.copy()
    following.apply(action)
    return following


def room_of(state: Any) -> str:
    """Where the player is, as in `r_0`."""
    return next(fact.arguments[1].name for fact in state.facts if fact.name == "at" and fact.arguments[0].name == "P")


def holds(state: Any, thing: str) -> bool:
    """Whether the player has taken it."""
    return any(fact.name == "in" and [v.name for v in fact.arguments] == [thing, "I"] for fact in state.facts)


def things_of(spec: HouseSpec) -> tuple[str, ...]:
    """What can be sought: `f_0`, `o_0`, `f_1`, ..."""
    return tuple(f"{_KINDS[n % 2]}_{n // 2}" for n in range(spec.num_things))


@lru_cache(maxsize=1024)
def routes(spec: HouseSpec) -> dict[str, str]:
    """The shortest way from the first room to each, doors or not, as in `north.east`."""
    facts = world_of(spec).state.facts
    beside: dict[str, dict[str, str]] = {}
    for fact in facts:
        if match := re.fullmatch(r"(\w+)_of", fact.name):
            there, here = (variable.name for variable in fact.arguments)
            beside.setdefault(here, {})[match[1]] = there
    found, queue = {"r_0": ""}, deque(["r_0"])
    while queue:
        room = queue.popleft()
        for direction in DIRECTIONS:
            there = beside.get(room, {}).get(direction)
            if there is not None and there not in found:
                found[there] = f"{found[room]}.{direction}".strip(".")
                queue.append(there)
    return {room: route or HERE for room, route in found.items()}


@lru_cache(maxsize=1024)
def places(spec: HouseSpec) -> dict[str, str]:
    """The route to the room in which each thing is at the beginning, whether it lies open there or in something."""
    inside = {}
    for fact in world_of(spec).state.facts:
        if fact.name in ("at", "in", "on"):
            what, where = (variable.name for variable in fact.arguments)
            inside[what] = where
    ways = routes(spec)

    def room(what: str) -> str:
        where = inside[what]
        return where if where in ways else room(where)

    return {thing: ways[room(thing)] for thing in things_of(spec)}


@lru_cache(maxsize=1024)
def map_text(spec: HouseSpec) -> str:
    """Which room is beside which, as text; whatever the things."""
    return " ".join(sorted(str(fact) for fact in world_of(spec).state.facts if fact.name.endswith("_of")))


def places_text(spec: HouseSpec) -> str:
    """Where the things are, as text: what a context can say of a house."""
    return " ".join(f"{thing}={route}" for thing, route in places(spec).items())


@lru_cache(maxsize=1024)
def plans(spec: HouseSpec, most: int) -> dict[str, tuple[Deed, ...]]:
    """The fewest deeds that take each thing that can be had within `most`; breadth first."""
    start = world_of(spec).state
    found: dict[str, tuple[Deed, ...]] = {}
    seen = {frozenset(start.facts)}
    queue: deque[tuple[Any, tuple[Deed, ...]]] = deque([(start, ())])
    while queue and len(seen) < MOST_STATES and len(found) < spec.num_things:
        state, before = queue.popleft()
        for deed in deeds(state) if len(before) < most else ():
            if deed.verb == "take" and not deed.what.startswith("k"):
                found.setdefault(deed.what, (*before, deed))
                continue
            following = after(state, deed.action)
            if (facts := frozenset(following.facts)) not in seen:
                seen.add(facts)
                queue.append((following, (*before, deed)))
    return dict(sorted(found.items()))


@cache
def _knowledge() -> Any:
    from textworld.generator.data import KnowledgeBase  # pyright: ignore[reportMissingImports]

    return KnowledgeBase.default()


def _direction(state: Any, here: str, there: str) -> str:
    """Which way the room `there` is."""
    return next(
        fact.name.removesuffix("_of")
        for fact in state.facts
        if fact.name.endswith("_of") and [variable.name for variable in fact.arguments] == [there, here]
    )
