"""The form of a world's members and of what its methods return: what has to be right before anything else can be checked."""

import contextlib
import copy
import dataclasses
import inspect
import signal
import threading
from collections.abc import Iterator
from typing import Any

from cod_lightning.envs.base import (
    HiddenRules,
    Players,
    Proposals,
    Stepped,
    TextEnv,
    Tools,
    Traits,
    Variants,
    Vocabulary,
    beside,
)
from cod_lightning.envs.for_people import ForPeople
from cod_lightning.envs.task_world import TaskWorld
from cod_lightning.evaluation.verdicts import Broken, Violation
from cod_lightning.types import Pack, Split, Task

DRAW_S = 10.0
"""Seconds after which a pack counts as one that is never found."""
_KINDS = (Players, Vocabulary, HiddenRules, Variants, Proposals, Tools, ForPeople)


def members(world: TextEnv) -> Broken:
    """What is wrong with attributes, properties, companions and words."""
    if not isinstance(own := world.companions, tuple) or not all(isinstance(one, type) for one in own):
        raise Violation(f"companions is {own!r:.60}; expected a tuple of classes, such as (MyPlayers,)")
    yield from _misplaced(world)
    name, max_turns = getattr(world, "name", None), getattr(world, "max_turns", None)
    if not isinstance(name, str):
        found = "missing" if name is None else f"{name!r:.60}"
        yield f"name is {found}; set it in __init__ to a line of text, which is part of every pack's id"
    if not isinstance(max_turns, int) or max_turns < 1:
        found = "missing" if max_turns is None else f"{max_turns!r:.60}"
        yield f"max_turns is {found}; expected a whole number, at least 1"
    for whole, properties in (
        (world, ("rules", "success", "status")),
        (beside(world, Proposals), ("offer",)),
        (beside(world, Tools), ("schemas", "results")),
    ):
        for one in properties:
            if inspect.isfunction(inspect.getattr_static(whole, one)):
                yield f"{one} is a method; put @property before it"
    if isinstance(world, TaskWorld) and not hasattr(world, "task_type"):
        yield "task_type is missing; set it in the class to the class of your tasks' specs"
    if not isinstance(words := beside(world, Vocabulary).words(), tuple):
        expected = "a tuple, whose order is the same in every process; () if any word may be shown"
        yield f"words() returned {_described(words)}; return {expected}"


def _misplaced(world: TextEnv) -> Broken:
    """Members that are read of `traits` or of a companion, and would have no effect where they are."""
    for field in dataclasses.fields(Traits):
        if hasattr(world, field.name):
            yield f"{field.name} has no effect here; set traits = Traits({field.name}=...)"
    for kind in _KINDS:
        for name in vars(kind):
            if not name.startswith("_") and hasattr(type(world), name):
                yield f"{name} has no effect here; move it to a class of {kind.__name__} and name that in companions"


def drawn(world: TextEnv, split: Split, index: int, num_tasks: int, **seed: int) -> Pack:
    """The pack with that identity. Raises `Violation` where there is none after `DRAW_S` seconds, and where it is no `Pack`."""
    with _limit(
        f"no pack of split {split} was found in {DRAW_S:g} s: are there too few hidden rules? A loop that draws until "
        "split_of_text(what is hidden) is the split never ends where the split has none"
    ):
        pack: Any = world.sample_pack(split=split, index=index, num_tasks=num_tasks, **seed)
    if not isinstance(pack, Pack):
        raise Violation(f"sample_pack returned {_described(pack)}; return a Pack")
    return pack


def begun(world: TextEnv, task: Task) -> str:
    """The first observation of a task. Raises `Violation` where `reset` returns something else."""
    found: Any = world.reset(options={"task": task})
    if not isinstance(found, tuple) or len(found) != 2:
        raise Violation(f"reset returned {_described(found)}; return two values: the first observation, and {{}}")
    if not isinstance(found[0], str) or found[1] != {}:
        raise Violation(f"reset gave {type(found[0]).__name__} and info {found[1]!r:.60}; expected text and {{}}")
    return found[0]


def first_task(world: TextEnv, pack: Pack) -> tuple[TextEnv, str]:
    """A copy of the world in the first task of the pack, and what it shows."""
    own = copy.deepcopy(world)
    return own, begun(own, pack.tasks[0])


def stepped(world: TextEnv, action: str) -> Stepped:
    """What a step returns. Raises `Violation` where it has another form."""
    found: Any = world.step(action)
    if not isinstance(found, tuple) or len(found) != 5:
        asked = "observation, reward, terminated, truncated, {}"
        raise Violation(f"step returned {_described(found)}; return five values: {asked}")
    shown, reward, *_, info = found
    if not isinstance(shown, str) or info != {}:
        raise Violation(
            f"after {action!r:.40} step gave {type(shown).__name__} and info {info!r:.40}; expected text and {{}}"
        )
    try:
        float(reward + 0)
    except TypeError:
        raise Violation(f"after {action!r:.40} the reward is {_described(reward)}; expected a number") from None
    return found


def first_steps(world: TextEnv, pack: Pack) -> Broken:
    """What is wrong with what `reset`, `rules` and `step` return."""
    own = copy.deepcopy(world)
    begun(own, pack.tasks[0])
    if not isinstance(own.rules, str):
        yield f"rules is {_described(own.rules)}; expected text"
    stepped(own, "<answer>1</answer>")


def _described(value: Any) -> str:
    if value is None:
        return "None"
    return f"{len(value)} values" if isinstance(value, tuple) else f"a {type(value).__name__}"


@contextlib.contextmanager
def _limit(sentence: str) -> Iterator[None]:
    """Raise `Violation` after `DRAW_S` seconds, in the main thread, the only one that signals reach."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise Violation(sentence)

    before = signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, DRAW_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)
