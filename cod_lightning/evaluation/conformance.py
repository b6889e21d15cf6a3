"""What a world breaks of its contract, found by playing it: `python -m cod_lightning check`.

Gymnasium's own checker comes first, then six rules that it does not know: packs go by identity, a task is the same whatever was
played before it, any text is a legal action, a closed vocabulary is complete, splits share no world, proposals become tasks. Then
references play. Each rule is a generator that yields a sentence for everything that breaks it; an exception of the world's is one,
too.
"""

import copy
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from cod_lightning.contexts.base import ContextMechanism, Words
from cod_lightning.envs.async_world import AsyncWorld
from cod_lightning.envs.base import HiddenRules, Players, Proposals, TextEnv, Vocabulary, beside
from cod_lightning.envs.wrapped import innermost
from cod_lightning.evaluation.conformance_play import verdicts_on_play
from cod_lightning.evaluation.conformance_turns import GARBAGE, drawn, ended, gymnasiums_own, members, unlike
from cod_lightning.evaluation.verdicts import Broken, Verdict, Violation, verdict_on
from cod_lightning.types import Message, Pack, Role, Split, Task, text_of

SLOW_S = 0.1
"""A step of a world that takes longer is named: a rollout makes thousands of them."""
_LONG = 9
"""Tasks of a pack that is long: where tasks help to decide the split, a short one may be the beginning of several."""
_DRAWS = 150
"""Packs of each split that are compared with those of the others, as far as `_DRAWS_S` reaches."""
_DRAWS_S = 2.0
_MOST_SHARED = 0.1
"""Of the packs of a split; in a world of very many rules one is drawn again by chance."""


def check_world(world: TextEnv, mechanism: ContextMechanism, num_packs: int, pack_size: int) -> Iterator[Verdict]:
    """Verdicts on a world, one by one; `num_packs` packs of `pack_size` tasks are played by each reference that it has."""
    packs: list[Pack] = []

    def draw() -> Broken:
        packs.extend(drawn(world, Split.TRAIN, index, pack_size, seed=0) for index in range(num_packs))
        for split in Split:
            drawn(world, split, 0, pack_size)
        yield from ()

    for rule, look in (
        ("name, max_turns, properties and words() are in place", lambda: members(world)),
        ("sample_pack draws packs of each split", draw),
        ("reset and step pass gymnasium's own checker", lambda: gymnasiums_own(world, packs[0])),
    ):
        yield (verdict := verdict_on(rule, look))
        if verdict.broken:  # everything else would fail for the same reason
            return
    before = [*map(repr, packs)]
    yield (slow := _slow(world, packs[:20]))
    few, found = packs[: 2 if slow.broken else 20], [slow]
    for rule, look in (
        ("a task is the same in a copy, and whatever was played before it", lambda: unlike(world, mechanism, few)),
        ("sample_pack is a pure function, and packs have ids of their own", lambda: _impure(world, few)),
        ("any text is a legal action, and a task ends within max_turns", lambda: ended(world, mechanism, few[:5])),
        ("a closed vocabulary lists every word that is shown", lambda: _words(world, mechanism, few)),
    ):
        found.append(verdict_on(rule, look))
        yield found[-1]
    found.append(_splits(world, num_packs))
    yield found[-1]
    found.append(verdict_on_proposals(world, mechanism, few[:5]))
    yield found[-1]
    if any(one.broken for one in found):  # a world without an end would be played for ever
        yield Verdict("play by references", remark="left out until the rules above hold")
    else:
        yield from verdicts_on_play(world, mechanism, packs)
    changed = (
        f"a task of pack {pack.id} is another one now"
        for old, pack in zip(before, packs, strict=True)
        if old != repr(pack)
    )
    yield verdict_on("playing leaves tasks as they were, since all siblings play the same ones", lambda: changed)


def _impure(world: TextEnv, packs: Sequence[Pack]) -> Broken:
    ids = set[str]()
    for index, length in enumerate((1, 2, _LONG)):
        pack = drawn(world, Split.TEST, index, length)
        if len(pack) != length:
            yield f"a pack of {length} tasks was asked for and one of {len(pack)} came"
        if len({task.id for task in pack.tasks}) < len(pack):
            yield f"two tasks of pack {pack.id} have the same id"
        if pack.id in ids:
            yield f"two packs have the id {pack.id}"
        ids.add(pack.id)
    other = copy.deepcopy(world)
    for index, pack in enumerate(packs):
        asked = {"split": pack.split, "index": index, "num_tasks": len(pack)}
        if drawn(other, **asked) != pack:
            yield f"pack {pack.id} is another one when it is drawn again"
        other.reset(options={"task": pack.tasks[0]})
        if drawn(other, **asked) != pack:
            yield f"pack {pack.id} is another one after a task was begun"
    if len(packs) > 1 and len({repr([task.spec for task in pack.tasks]) for pack in packs}) == 1:
        yield "every index draws the same pack"
    elif len(packs) > 1 and len({pack.world_seed for pack in packs}) == 1:
        yield f"every index draws a pack of world_seed {packs[0].world_seed}, so packs hide the same and weights can learn it"


def _splits(world: TextEnv, num_packs: int) -> Verdict:
    """Whether packs of different splits hide the same. A remark where few rules exist, so that tasks may have to decide as well."""
    remarks: list[str] = []

    def look() -> Broken:
        packs = {split: list(_drawn_in_time(world, split, max(num_packs, _DRAWS))) for split in Split}
        seen: dict[str, str] = {}
        for split, one in ((split, pack) for split, of_split in packs.items() for pack in of_split):
            if (other := seen.setdefault(repr([task.spec for task in one.tasks]), split)) != split:
                yield f"a pack of {split} has the tasks of one of {other}; decide by split_of_text(what is hidden)"
                return
        known = {pack.world_seed for pack in packs[Split.TRAIN]}
        others = [pack.world_seed for split in (Split.VALIDATION, Split.TEST) for pack in packs[split]]
        shared = sum(one in known for one in others)
        if shared < _MOST_SHARED * len(others):
            return
        found = f"{shared} of {len(others)} packs of validation and test have the world_seed of a training pack"
        if 3 * len(known) > len(packs[Split.TRAIN]):
            yield f"{found}, so they hide the same; decide by split_of_text(what is hidden)"
        else:
            remarks.append(f"{found}; a mistake, unless few rules exist and the tasks decide the split as well")

    verdict = verdict_on("packs of different splits share no world", look)
    return replace(verdict, remark="".join(remarks), look=bool(remarks))


def _drawn_in_time(world: TextEnv, split: Split, num_packs: int) -> Iterator[Pack]:
    ends = time.perf_counter() + _DRAWS_S
    for index in range(num_packs):
        yield drawn(world, split, index, _LONG)
        if time.perf_counter() > ends:
            return


def _words(world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack]) -> Broken:
    words = beside(world, Vocabulary).words()
    if not words:
        return
    if len(set(words)) < len(words) or any(word.split() != [word] for word in words):
        yield "a word is listed twice, or is no single word"
    known = set(words)
    for pack in packs:
        own = copy.deepcopy(world)
        for task in pack.tasks:
            begun, _ = own.reset(options={"task": task})
            shown = text_of(begun)
            for method, text in (("reset", shown), ("rules", own.rules), ("step", text_of(own.step("?")[0]))):
                yield from _unlisted(method, text, known)
            system = mechanism.prepare(mechanism.empty(), own.rules, shown).system
            noted = {*known, *beside(mechanism, Words).words(), *own.rules.split()}
            yield from _unlisted(f"{type(mechanism).__name__}.prepare", system, noted)


def _unlisted(who: str, text: str, known: set[str]) -> Broken:
    for word in sorted(set(text.split()) - known):
        known.add(word)
        yield f"{who} shows {word!r:.60}, which words() does not list"


def _slow(world: TextEnv, packs: Sequence[Pack]) -> Verdict:
    taken: dict[str, list[float]] = {"sample_pack": [], "reset": [], "step": []}

    def time_calls() -> Broken:
        for index, pack in enumerate(packs):
            if sum(map(sum, taken.values())) > len(packs) * SLOW_S:
                break
            own, marks = copy.deepcopy(world), [time.perf_counter()]
            own.sample_pack(split=Split.TRAIN, index=index, num_tasks=len(pack))
            marks.append(time.perf_counter())
            own.reset(options={"task": pack.tasks[0]})
            marks.append(time.perf_counter())
            own.step("<answer>1</answer>")
            for times, (begin, end) in zip(taken.values(), pairwise([*marks, time.perf_counter()]), strict=True):
                times.append(end - begin)
        # Those of a blocking world wait in threads, and hold up no other; those of an asynchronous one are awaited.
        waits = {"reset", "step"} if world.traits.blocking or isinstance(innermost(world), AsyncWorld) else set[str]()
        for name, times in taken.items():
            if name not in waits and statistics.median(times) > SLOW_S:
                yield f"{name} takes {statistics.median(times):.2f} s"

    verdict = verdict_on(f"calls take less than {SLOW_S:g} s", time_calls)
    shown = (f"{name} {statistics.median(times) * 1000:.2f} ms" for name, times in taken.items() if times)
    return replace(verdict, remark=", ".join(shown))


def verdict_on_proposals(world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack]) -> Verdict:
    """Where an agent proposes tasks (`Proposals`)."""
    none: list[str] = []

    def look() -> Broken:
        for pack in packs:
            yield from _proposed(world, mechanism, pack, none)

    return replace(verdict_on("proposals: offer asks for a task, proposed makes one", look), remark="".join(none[:1]))


def _proposed(world: TextEnv, mechanism: ContextMechanism, pack: Pack, none: list[str]) -> Broken:
    words = beside(world, Vocabulary).words()
    known = {*words, *beside(mechanism, Words).words()} if words else None
    own, offers = copy.deepcopy(world), list[str]()
    for task in pack.tasks:
        own.reset(options={"task": task})
        offers.append(beside(own, Proposals).offer)
    offer: Any = offers[0]
    if not isinstance(offer, str):
        raise Violation(f"offer is a {type(offer).__name__}; expected text")
    if len(set(offers)) > 1:
        yield f"offer differs between tasks of pack {pack.id}"
    if not offer:
        none.append("the world asks for none")
        return
    if known is not None:
        yield from _unlisted("offer", offer, known)
    texts: list[str] = [*GARBAGE]
    try:
        teacher = beside(world, Players).demonstrator(pack)
    except NotImplementedError:
        pass
    else:
        system = mechanism.prepare(mechanism.empty(), own.rules, offer).system
        said = teacher.propose((Message(Role.SYSTEM, system), Message(Role.USER, offer)), random.Random(0))
        if known is not None:
            yield from _unlisted("the demonstrator's proposal", said, known)
        if beside(own, Proposals).proposed(said, pack.tasks[0]) is None:
            yield f"the demonstrator proposes {said!r:.60}, which is no task; write its `propose` (of a Play: `proposal`)"
        texts.insert(0, said)
    for text in texts:
        yield from _made(world, own, text, pack, known)


def _made(world: TextEnv, own: TextEnv, text: str, pack: Pack, known: set[str] | None) -> Broken:
    """What is wrong with the task that this text makes of a pack's last one."""
    task, before, rule = pack.tasks[-1], repr(pack.tasks[-1]), beside(own, HiddenRules).hidden_rule
    made: Any = beside(own, Proposals).proposed(text, task)
    if repr(task) != before:
        yield f"proposed({text!r:.40}) changes the pack's own task; make one by dataclasses.replace"
    if made is None:
        return
    if not isinstance(made, Task):
        raise Violation(f"proposed({text!r:.40}) gave a {type(made).__name__}; expected a Task or None")
    if beside(own, Proposals).proposed(text, task) != made:
        yield f"proposed({text!r:.40}) makes another task when it is asked again"
    if type(made.spec) is not type(task.spec):
        raise Violation(f"proposed({text!r:.40}) made a task with a {type(made.spec).__name__} as its spec")
    if rule(replace(pack, tasks=(made,))) != rule(replace(pack, tasks=(task,))):
        yield f"proposed({text!r:.40}) changes what the pack hides; a proposal may not"
    if known is not None:
        begun, _ = copy.deepcopy(world).reset(options={"task": made})
        shown = text_of(begun)
        yield from _unlisted(f"the task of proposed({text!r:.40})", shown, known)
