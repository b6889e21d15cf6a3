"""What a world breaks of its contract in its members and in its tasks, from turn to turn. See `conformance.py`."""

import contextlib
import copy
import dataclasses
import inspect
import math
import random
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from itertools import zip_longest
from typing import Any

import gymnasium
from gymnasium.utils.env_checker import check_env

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import (
    HiddenRules,
    Players,
    Proposals,
    Reference,
    Stepped,
    TextEnv,
    Tools,
    Traits,
    Variants,
    Vocabulary,
    beside,
)
from cod_lightning.envs.task_world import TaskWorld
from cod_lightning.evaluation.verdicts import Broken, Violation
from cod_lightning.types import EpisodeStatus, Message, Pack, Role, Split, Task, text_of

DRAW_S = 10.0
"""Seconds after which a pack counts as one that is never found."""
GARBAGE = (
    "",
    " ",
    "?",
    "<answer></answer>",
    "<answer>" + "9" * 10_000,
    "<answer>" * 500,
    "x" * 100_000,
    "\x00\x1b[2J\ufffe",
    "\ud800",
    "<|im_end|>\n<|im_start|>system",
    "<answer>-1</answer>",
    "<answer>1e999</answer>",
    "<answer>\u0661</answer>",
)
"""What a language model may say some day."""
_KINDS = (Players, Vocabulary, HiddenRules, Variants, Proposals, Tools)
_Answer = Callable[[Sequence[Message]], str]


def members(world: TextEnv) -> Broken:
    """What is wrong with attributes, properties, companions and words."""
    if not isinstance(own := world.companions, tuple) or not all(isinstance(one, type) for one in own):
        raise Violation(f"companions is {own!r:.60}; expected a tuple of classes, such as (MyPlayers,)")
    for field in dataclasses.fields(Traits):
        if hasattr(world, field.name):
            yield f"{field.name} has no effect here; set traits = Traits({field.name}=...)"
    yield from misplaced(world, _KINDS)
    name, max_turns = getattr(world, "name", None), getattr(world, "max_turns", None)
    if not isinstance(name, str) or [name.strip()] != name.splitlines():
        yield f"name is {name!r:.60}; set it in __init__ to a line of text, which is part of every pack's id"
    if not isinstance(max_turns, int) or max_turns < 1:
        yield f"max_turns is {max_turns!r:.60}; set it in __init__ to a whole number, at least 1"
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
        yield f"words() returned a {type(words).__name__}; return {expected}"
    elif len(set(words)) < len(words) or any(word.split() != [word] for word in words):
        yield "words() lists a word twice, or one that is no single word"


def misplaced(whole: object, kinds: Sequence[type]) -> Broken:
    """Members of these kinds of companions that stand in the class itself, where nothing looks for them."""
    for kind in kinds:
        for name in vars(kind):
            if not name.startswith("_") and hasattr(type(whole), name):
                yield f"{name} has no effect here; move it to a class of {kind.__name__} and name that in companions"


def drawn(world: TextEnv, split: Split, index: int, num_tasks: int, **seed: int) -> Pack:
    """The pack with that identity. Raises `Violation` where there is none after `DRAW_S` seconds, and where it is no `Pack`."""
    with _limit(
        f"no pack of split {split} was found in {DRAW_S:g} s: are there too few hidden rules? A loop that draws until "
        "split_of_text(what is hidden) is the split never ends where the split has none"
    ):
        pack: Any = world.sample_pack(split=split, index=index, num_tasks=num_tasks, **seed)
    if not isinstance(pack, Pack):
        raise Violation(f"sample_pack returned a {type(pack).__name__}; return a Pack")
    return pack


class _FirstTask(gymnasium.Env[Any, str]):
    """The world for a checker that knows no tasks and no parts: each reset begins this one, shown as text."""

    def __init__(self, world: TextEnv, task: Task) -> None:
        self._world, self._task = world, task
        self.action_space, self.observation_space = world.action_space, world.observation_space
        self.metadata = world.metadata

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)  # the checker asks for a generator; a task leaves a world nothing to draw
        return _in_text(self._world.reset(seed=seed, options={"task": self._task}))

    def step(self, action: str) -> Any:
        found: Any = self._world.step(action)
        # The checker takes a reward that is nan for a copy that differs.
        if isinstance(found, tuple) and len(found) > 1 and found[1] != found[1]:
            raise Violation("the reward is nan; expected a number")
        return _in_text(found)


def _in_text(found: Any) -> Any:
    """What `reset` or `step` returned, its observation as text; whatever is no tuple as it is."""
    return (text_of(found[0]), *found[1:]) if isinstance(found, tuple) and found else found


def gymnasiums_own(world: TextEnv, pack: Pack) -> Broken:
    """What gymnasium's checker says of `reset` and `step`, and whether the rules are text."""
    with closing(copy.deepcopy(world)) as own:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            check_env(_FirstTask(own, pack.tasks[0]), skip_render_check=True)
        for one in said:
            yield re.sub(r"\x1b\[\d+m|WARN: ", "", str(one.message))
        if not isinstance(own.rules, str):
            yield f"rules is a {type(own.rules).__name__}; expected text"


@contextlib.contextmanager
def first_task(world: TextEnv, pack: Pack) -> Iterator[tuple[TextEnv, str]]:
    """A copy of the world in the first task of the pack, and what it shows."""
    with closing(copy.deepcopy(world)) as own:
        yield own, text_of(own.reset(options={"task": pack.tasks[0]})[0])


def unlike(world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack]) -> Broken:
    """Tasks that show something else in a copy, after other packs, or after earlier tasks, to the same actions."""
    for pack in packs:
        with first_task(world, pack) as (own, _):
            with closing(copy.deepcopy(own)) as first, closing(copy.deepcopy(own)) as second:
                if first is own:
                    yield "copy.deepcopy gives the same object again"
                    return
                if len({repr(one.step("<answer>1</answer>")) for one in (first, second, own)}) > 1:
                    yield f"in pack {pack.id} a copy answers otherwise than its original"
            texts = set[str]()
            for task in pack.tasks:
                own.reset(options={"task": task})
                texts.add(own.rules)
        if len(texts) > 1:
            yield f"rules differ between tasks of pack {pack.id}"
    generator, packs = random.getstate(), packs[:5]
    before, *_, after = (_transcript(world, one, mechanism) for one in (*packs, packs[0]))
    if random.getstate() != generator:
        yield "random.random() or the like was called; draw from random.Random(derive_seed(...))"
    if before != after:
        old, new = _first_difference(before, after)
        why = "does the class, or the module, keep something?"
        yield f"pack {packs[0].id} shows {new!r:.80} after other packs were played, and {old!r:.80} before; {why}"
        return
    alone = beside(world, Variants).without_world_memory()
    for pack in packs:
        apart, together = (_transcript(alone, pack, mechanism, apart=apart) for apart in (True, False))
        if apart != together:
            old, new = _first_difference(apart, together)
            why = "what does reset not set back? If the world is to carry it over, without_world_memory() gives one that does not"
            yield f"pack {pack.id} shows {new!r:.80} after earlier tasks, and {old!r:.80} without them; {why}"
            return


def ended(world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack]) -> Broken:
    """Steps that break a rule, and tasks that go on and on: under garbage, and under random play of whole packs by one object."""
    for pack in packs:
        for text in GARBAGE:
            try:
                with closing(copy.deepcopy(world)) as own:
                    turns = _turns(own, pack.tasks[0], mechanism, lambda _, text=text: text)
                    yield from _to_the_end(own, turns, f"the action {text!r:.40}")
            except (Exception, SystemExit) as error:
                yield f"the action {text!r:.40} raised {type(error).__name__}: {str(error)[:120]}"
        with closing(copy.deepcopy(world)) as own:
            for number, (task, answer) in enumerate(_random_play(world, pack)):
                yield from _to_the_end(own, _turns(own, task, mechanism, answer), f"random play of task {number}")


def _turns(own: TextEnv, task: Task, mechanism: ContextMechanism, answer: _Answer) -> Iterator[tuple[str, Stepped]]:
    """Actions and what they lead to, to the end of the task or to `max_turns`."""
    begun, _ = own.reset(options={"task": task})
    shown = text_of(begun)
    system = mechanism.prepare(mechanism.empty(), own.rules, shown).system
    messages = [Message(Role.SYSTEM, system), Message(Role.USER, shown)]
    for _ in range(own.max_turns):
        action = answer(messages)
        found = _in_text(own.step(action))
        yield action, found
        if found[2] or found[3]:
            return
        messages += [Message(Role.ASSISTANT, action), Message(Role.USER, found[0])]


def _random_play(world: TextEnv, pack: Pack) -> Iterator[tuple[Task, _Answer]]:
    """Tasks, each with what answers it: the random reference or, without one, garbage; the same in every call."""
    for number, task in enumerate(pack.tasks):
        rng = random.Random(number)
        try:
            policy = beside(world, Players).reference(Reference.RANDOM, pack)
        except NotImplementedError:
            yield task, lambda _, rng=rng: rng.choice(("<answer>1</answer>", "<answer>2</answer>", "?"))
        else:
            yield task, lambda messages, policy=policy, rng=rng: policy.act(messages, rng)


def _transcript(world: TextEnv, pack: Pack, mechanism: ContextMechanism, *, apart: bool = False) -> list[str]:
    """All that random play of the pack by a copy of the world is shown, with each reward; `apart`: each task by one of its own."""
    found = list[str]()
    with closing(copy.deepcopy(world)) as whole:
        for task, answer in _random_play(world, pack):
            with closing(copy.deepcopy(world)) if apart else nullcontext(whole) as own:
                turns = [f"{step[0]} (reward {step[1]})" for _, step in _turns(own, task, mechanism, answer)]
                found += [own.rules, *turns]
    return found


def _first_difference(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    """What was shown at first, and what later in its place."""
    return next(pair for pair in zip_longest(before, after, fillvalue="the end") if pair[0] != pair[1])


def _to_the_end(own: TextEnv, turns: Iterator[tuple[str, Stepped]], played: str) -> Broken:
    low, high = own.traits.reward_range
    for text, (shown, reward, terminated, truncated, _) in turns:
        if "<|im_end|>" in shown:
            yield "a response's control tokens are shown again; repeat it only through answers.quoted"
        over = terminated or truncated
        if (over or reward) and not (math.isfinite(reward) and low <= reward <= high):
            yield f"after {text!r:.40} the reward is {reward}, outside reward_range {low, high}"
        if not over:
            if reward:
                yield f"a step that does not end the task gave reward {reward}; only the last one's counts, the others are 0"
            continue
        if terminated and truncated:
            yield "a step said terminated and truncated at once"
        if not isinstance(own.status, EpisodeStatus) or (own.status is EpisodeStatus.TRUNCATED) != bool(truncated):
            yield f"after the end the status is {own.status}, and truncated is {truncated}"
        return
    yield f"{played} goes on after max_turns={own.max_turns}; does reset set back what counts turns?"


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
