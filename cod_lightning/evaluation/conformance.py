"""What a world breaks of its contract, found by playing it: `python -m cod_lightning check`.

Each rule is a generator that yields a sentence for everything that breaks it. What a rule's own code meets (an exception of the
world's) is such a sentence as well.
"""

import copy
import random
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any

from cod_lightning.contexts.base import ContextMechanism, Words
from cod_lightning.envs.async_world import AsyncWorld
from cod_lightning.envs.base import TextEnv, Vocabulary, beside
from cod_lightning.envs.gymnasium_world import GymnasiumTask
from cod_lightning.envs.question_world import QuestionTask
from cod_lightning.envs.wrapped import innermost
from cod_lightning.evaluation.conformance_form import begun, drawn, first_steps, first_task, members, stepped
from cod_lightning.evaluation.conformance_play import verdicts_on_play
from cod_lightning.evaluation.conformance_proposals import verdict_on_proposals
from cod_lightning.evaluation.conformance_turns import copied, ended, influenced, out_of_turns
from cod_lightning.evaluation.verdicts import Broken, Verdict, verdict_on
from cod_lightning.types import Pack, Split

SLOW_S = 0.1
"""A step of a world that takes longer is named: a rollout makes thousands of them."""
_LONG = 9
"""Tasks of a pack that is long: where the tasks help to decide the split, a short one may be the beginning of several."""
_DRAWS = 150
"""Packs of each split that are compared with those of the others, as far as `_DRAWS_S` reaches."""
_DRAWS_S = 2.0
_MOST_SHARED = 0.1
"""Of the packs of a split; in a world of very many rules one is drawn again by chance."""
_SHARED = "tasks of a pack share what is hidden"


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
        ("reset, rules and step return what they should", lambda: first_steps(world, packs[0])),
    ):
        yield (verdict := verdict_on(rule, look))
        if verdict.broken:  # everything else would fail for the same reason
            return
    before = [*map(repr, packs)]
    yield (slow := _slow(world, packs[:20]))
    few, broken = packs[: 2 if slow.broken else 20], bool(slow.broken)
    for rule, look in (
        ("a task is the same whatever was played before it", lambda: influenced(world, mechanism, few[:5])),
        ("sample_pack is a pure function of its arguments", lambda: _impure(world, few)),
        ("packs have the asked length, and ids of their own", lambda: _lengths(world)),
        ("rules are the same for all tasks of a pack", lambda: _rules(world, few)),
        ("a deep copy is a snapshot: it steps alike and apart", lambda: copied(world, few)),
        ("any text is a legal action, and a task ends within max_turns", lambda: ended(world, mechanism, few[:5])),
        ("a closed vocabulary lists every word that is shown", lambda: _words(world, mechanism, few)),
        ("draws leave Python's global generator alone", lambda: _global_draws(world)),
    ):
        broken += bool((verdict := verdict_on(rule, look)).broken)
        yield verdict
    late = verdict_on("a task that runs out of turns is TRUNCATED", lambda: out_of_turns(world, mechanism, few[:5]))
    yield Verdict(late.rule, remark=" ".join(late.broken), look=bool(late.broken))
    yield (splits := _splits(world, num_packs))
    broken += bool(splits.broken)
    hidden = _constant(few) if pack_size > 1 else []
    yield (proposals := verdict_on_proposals(world, mechanism, few[:5], hidden))
    broken += bool(proposals.broken)
    yield _spelled(world, few)
    yield _repeated(packs)
    yield _unshared(packs)
    if broken:  # a world without an end would be played for ever
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
        names = _constant([pack for of_split in packs.values() for pack in of_split])
        for what, key in (
            ("world_seed", lambda pack: pack.world_seed),
            (" and ".join(names), lambda pack: repr([getattr(pack.tasks[0].spec, one) for one in names])),
        ):
            train = [key(pack) for pack in packs[Split.TRAIN]]
            known = set(train)
            others = [key(pack) for split in (Split.VALIDATION, Split.TEST) for pack in packs[split]]
            many, shared = 3 * len(known) > len(train), sum(one in known for one in others)
            if not what or shared < _MOST_SHARED * len(others):
                continue
            found = f"{shared} of {len(others)} packs of validation and test have the {what} of a training pack"
            if what == "world_seed" and many:
                yield f"{found}, so they hide the same; decide by split_of_text(what is hidden)"
            elif what == "world_seed":
                remarks.append(f"{found}; a mistake, unless few rules exist and the tasks decide the split as well")
            elif many:
                remarks.append(f"{found}; a mistake, if that is what is hidden")
            return

    verdict = verdict_on("packs of different splits share no world", look)
    return replace(verdict, remark="".join(remarks), look=bool(remarks))


def _drawn_in_time(world: TextEnv, split: Split, num_packs: int) -> Iterator[Pack]:
    ends = time.perf_counter() + _DRAWS_S
    for index in range(num_packs):
        yield drawn(world, split, index, _LONG)
        if time.perf_counter() > ends:
            return


def _constant(packs: Sequence[Pack]) -> list[str]:
    """Names of the fields that are the same in all tasks of each of these packs."""
    found: list[set[str]] = []
    for pack in packs:
        specs = [{f.name: repr(getattr(t.spec, f.name)) for f in _fields(t.spec)} for t in pack.tasks]
        found.append({name for name, value in specs[0].items() if all(one.get(name) == value for one in specs)})
    return sorted(set[str].intersection(*found))


def _fields(spec: object) -> tuple[Field[Any], ...]:
    return fields(spec) if is_dataclass(spec) else ()


def _lengths(world: TextEnv) -> Broken:
    if [world.name.strip()] != world.name.splitlines():
        yield f"name is {world.name!r:.60}; expected a line of text, since it is part of every pack's id"
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


def _rules(world: TextEnv, packs: Sequence[Pack]) -> Broken:
    for pack in packs:
        own, texts = copy.deepcopy(world), set[str]()
        for task in pack.tasks:
            begun(own, task)
            texts.add(own.rules)
        if len(texts) > 1:
            yield f"rules differ between tasks of pack {pack.id}"


def _spelled(world: TextEnv, packs: Sequence[Pack]) -> Verdict:
    """A word of the rules that only some packs have, and that is a value of the pack's specification."""
    rule = "rules do not spell what is hidden"
    shown: list[set[str]] = []
    try:
        shown += [set(re.findall(r"\w+", first_task(world, pack)[0].rules)) for pack in packs]
    except Exception:
        return Verdict(rule, remark="left out until rules can be read")
    common = set[str].intersection(*shown)
    for pack, words in zip(packs, shown, strict=True):
        values = set[str].intersection(*(set(re.findall(r"\w+", repr(task.spec))) for task in pack.tasks))
        if own_words := sorted((words - common) & values):
            remark = (
                f"those of pack {pack.id} say {own_words[0]!r}, as its specification does and other packs' rules do not"
            )
            return Verdict(rule, remark=f"{remark}; a mistake, if that is hidden", look=True)
    return Verdict(rule)


def _repeated(packs: Sequence[Pack]) -> Verdict:
    """Whether most later tasks are an earlier one of their pack again, so that a context carries answers, not what is hidden."""
    rule = "tasks of a pack differ"
    later = [task.repeat for pack in packs for task in pack.tasks[1:]]
    remark = f"{sum(later)} of {len(later)} later tasks are an earlier one of their pack again"
    if 2 * sum(later) <= len(later):
        return Verdict(rule)
    return Verdict(rule, remark=f"{remark}: a context that notes answers solves them; ask for smaller packs", look=True)


def _unshared(packs: Sequence[Pack]) -> Verdict:
    """Whether any field of the specification is the pack's, so that there is something which a context can carry.

    Left open where specifications are not the world's own: rows of a list share what their group does.
    """
    specs = [pack.tasks[0].spec for pack in packs]
    if not all(_fields(spec) and not isinstance(spec, (QuestionTask, GymnasiumTask)) for spec in specs):
        return Verdict(_SHARED, remark="not looked at; see that the tasks of each group do")
    if any(len({repr(getattr(spec, name)) for spec in specs}) > 1 for name in _constant(packs)):
        return Verdict(_SHARED)
    remark = "no field of `spec` is the same in all tasks of a pack and another one in other packs: what could a context carry?"
    return Verdict(_SHARED, remark=remark, look=True)


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
            shown = begun(own, task)
            for method, text in (("reset", shown), ("rules", own.rules), ("step", stepped(own, "?")[0])):
                for word in sorted(set(text.split()) - known):
                    known.add(word)
                    yield f"{method} shows {word!r:.60}, which words() does not list"
            system = mechanism.prepare(mechanism.empty(), own.rules, shown).system
            for word in sorted(set(system.split()) - {*known, *beside(mechanism, Words).words(), *own.rules.split()}):
                known.add(word)
                yield f"{type(mechanism).__name__}.prepare shows {word!r:.60}, which its words() does not list"


def _global_draws(world: TextEnv) -> Broken:
    before = random.getstate()
    own, _ = first_task(world, drawn(world, Split.TRAIN, 0, 2))
    own.step("?")
    if random.getstate() != before:
        yield "random.random() or the like was called; draw from random.Random(derive_seed(...))"


def _slow(world: TextEnv, packs: Sequence[Pack]) -> Verdict:
    taken: dict[str, list[float]] = {"sample_pack": [], "reset": [], "step": []}
    try:
        for index, pack in enumerate(packs):
            if sum(map(sum, taken.values())) > len(packs) * SLOW_S:
                break
            own = copy.deepcopy(world)
            for name, call in (
                ("sample_pack", lambda: own.sample_pack(split=Split.TRAIN, index=index, num_tasks=len(pack))),  # noqa: B023
                ("reset", lambda: own.reset(options={"task": pack.tasks[0]})),  # noqa: B023
                ("step", lambda: own.step("<answer>1</answer>")),  # noqa: B023
            ):
                begun = time.perf_counter()
                call()
                taken[name].append(time.perf_counter() - begun)
    except (Exception, SystemExit) as error:
        return Verdict("calls are quick", (f"raised {type(error).__name__}: {str(error)[:200]}",))
    medians = {name: statistics.median(times) for name, times in taken.items() if times}
    # Those of a blocking world wait in threads, and hold up no other; those of an asynchronous one are awaited.
    waits = {"reset", "step"} if world.traits.blocking or isinstance(innermost(world), AsyncWorld) else set[str]()
    slow = tuple(
        f"{name} takes {median:.2f} s" for name, median in medians.items() if median > SLOW_S and name not in waits
    )
    shown = ", ".join(f"{name} {median * 1000:.2f} ms" for name, median in medians.items())
    return Verdict(f"calls take less than {SLOW_S:g} s", slow, shown)
