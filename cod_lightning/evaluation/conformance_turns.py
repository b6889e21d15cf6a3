"""What a world breaks of its contract from turn to turn, and from task to task. See `conformance.py`."""

import copy
import math
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import Players, Reference, Stepped, TextEnv, Variants, beside
from cod_lightning.evaluation.conformance_form import begun, first_task, stepped
from cod_lightning.evaluation.verdicts import Broken
from cod_lightning.types import EpisodeStatus, Message, Pack, Role, Task

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
_Answer = Callable[[Sequence[Message]], str]


def copied(world: TextEnv, packs: Sequence[Pack]) -> Broken:
    """What `copy.deepcopy` does not copy, or copies of too little."""
    for pack in packs:
        own, _ = first_task(world, pack)
        first, second = copy.deepcopy(own), copy.deepcopy(own)
        if first is own:
            yield "copy.deepcopy gives the same object again"
            return
        steps = [repr(stepped(one, "<answer>1</answer>")) for one in (first, second, own)]
        if steps[0] != steps[1] or steps[0] != steps[2]:
            yield f"in pack {pack.id} a copy answers otherwise than its original"


def influenced(world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack]) -> Broken:
    """Tasks that show something else after other packs, or after earlier tasks of their pack, in answer to the same actions."""
    pack = packs[0]
    before, *_, after = (_transcripts(world, one, mechanism) for one in (*packs, pack))
    for old, new in _differing(before, after):
        why = "does the class, or the module, keep something?"
        yield f"pack {pack.id} shows {new!r:.80} after other packs were played, and {old!r:.80} before; {why}"
        return
    alone = beside(world, Variants).without_world_memory()
    for pack in packs:
        together = _transcripts(alone, pack, mechanism)
        apart = [
            _transcript(copy.deepcopy(alone), task, mechanism, answer) for task, answer in _random_play(alone, pack)
        ]
        for old, new in _differing(apart, together):
            why = "what does reset not set back? If the world is to carry it over, without_world_memory() gives one that does not"
            yield f"pack {pack.id} shows {new!r:.80} after earlier tasks, and {old!r:.80} without them; {why}"
            return


def ended(world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack]) -> Broken:
    """Steps that break a rule, and tasks that go on and on: under garbage, and under random play of whole packs by one object."""
    for pack in packs:
        for text in GARBAGE:
            own, answer = copy.deepcopy(world), lambda _, text=text: text
            try:
                yield from _to_the_end(own, _turns(own, pack.tasks[0], mechanism, answer), f"the action {text!r:.40}")
            except (Exception, SystemExit) as error:
                yield f"the action {text!r:.40} raised {type(error).__name__}: {str(error)[:120]}"
        own = copy.deepcopy(world)
        for number, (task, answer) in enumerate(_random_play(world, pack)):
            yield from _to_the_end(own, _turns(own, task, mechanism, answer), f"random play of task {number}")


def out_of_turns(world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack]) -> Broken:
    """A task that would go on, had it another turn, and does not end as TRUNCATED.

    Left out where a wrong answer ends a task anyway: with one turn, or in a `TaskWorld` that has no outcome for it.
    """
    if world.max_turns == 1 or getattr(world, "late", "") is None:
        return
    for pack in packs:
        for task, answer in _random_play(world, pack):
            own, longer = copy.deepcopy(world), copy.deepcopy(world)
            turns = list(_turns(own, task, mechanism, answer))
            if len(turns) < own.max_turns or own.success or own.status is not EpisodeStatus.COMPLETED:
                continue
            try:
                longer.max_turns += 1
            except AttributeError:  # a property
                return
            actions = iter([action for action, _ in turns])
            if len(list(_turns(longer, task, mechanism, lambda _, actions=actions: next(actions, "?")))) > len(turns):
                ended = (
                    f"a task ends as completed at turn {own.max_turns}, and goes on with max_turns={longer.max_turns}"
                )
                yield f"{ended}; TRUNCATED says more (a TaskWorld names the outcome of such a task in `late`)"
                return


def _turns(own: TextEnv, task: Task, mechanism: ContextMechanism, answer: _Answer) -> Iterator[tuple[str, Stepped]]:
    """Actions and what they lead to, to the end of the task or to `max_turns`."""
    shown = begun(own, task)
    system = mechanism.prepare(mechanism.empty(), own.rules, shown).system
    messages = [Message(Role.SYSTEM, system), Message(Role.USER, shown)]
    for _ in range(own.max_turns):
        action = answer(messages)
        found = stepped(own, action)
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


def _transcripts(world: TextEnv, pack: Pack, mechanism: ContextMechanism) -> list[list[str]]:
    """Random play of the whole pack by one copy of the world: what each task shows."""
    own = copy.deepcopy(world)
    return [_transcript(own, task, mechanism, answer) for task, answer in _random_play(world, pack)]


def _transcript(own: TextEnv, task: Task, mechanism: ContextMechanism, answer: _Answer) -> list[str]:
    """All that is shown in the task, with each reward."""
    turns = [f"{step[0]} (reward {step[1]})" for _, step in _turns(own, task, mechanism, answer)]
    return [own.rules, *turns]


def _differing(before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """What was shown at first, and what later in its place, wherever they differ."""
    for old, new in zip(before, after, strict=True):
        for pair in zip_longest(old, new, fillvalue="the end"):
            if pair[0] != pair[1]:
                yield pair


def _to_the_end(own: TextEnv, turns: Iterator[tuple[str, Stepped]], played: str) -> Broken:
    low, high = own.traits.reward_range
    for text, (shown, reward, terminated, truncated, _) in turns:
        if "<|im_end|>" in shown:
            yield "a response's control tokens are shown again; repeat it only through answers.quoted"
        if not (math.isfinite(reward) and low <= reward <= high):
            yield f"after {text!r:.40} the reward is {reward}, outside reward_range {low, high}"
        if not (terminated or truncated):
            if reward:
                yield f"a step that does not end the task gave reward {reward}; only the last one's counts, the others are 0"
            continue
        if terminated and truncated:
            yield "a step said terminated and truncated at once"
        if not isinstance(own.status, EpisodeStatus) or (own.status is EpisodeStatus.TRUNCATED) != bool(truncated):
            yield f"after the end the status is {own.status}, and truncated is {truncated}"
        return
    yield f"{played} goes on after max_turns={own.max_turns}; does reset set back what counts turns?"
