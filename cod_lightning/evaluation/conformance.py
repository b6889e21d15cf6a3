"""What a world breaks of its contract, found by playing it: `python -m cod_lightning check`.

Gymnasium's own checker comes first, then six rules that it does not know: packs go by identity, a task is the same whatever was
played before it, any text is a legal action, splits share no world, proposals become tasks, and a closed vocabulary is complete.
References play for the last one. Each rule is a generator that yields a sentence for everything that breaks it; an exception of the
world's is one, too.
"""

import copy
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import HiddenRules, Players, Proposals, TextEnv, beside
from cod_lightning.evaluation.conformance_play import verdicts_on_play
from cod_lightning.evaluation.conformance_turns import (
    GARBAGE,
    drawn,
    ended,
    first_task,
    gymnasiums_own,
    members,
    unlike,
)
from cod_lightning.evaluation.verdicts import Broken, Verdict, Violation, verdict_on
from cod_lightning.types import Message, Pack, Role, Split, Task

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
    few, found = packs[:20], list[Verdict]()
    rules: list[tuple[str, Callable[[], Broken]]] = [
        ("a task is the same in a copy, and whatever was played before it", lambda: unlike(world, mechanism, few)),
        ("sample_pack is a pure function, and packs have ids of their own", lambda: _impure(world, few)),
        ("any text is a legal action, and a task ends within max_turns", lambda: ended(world, mechanism, few[:5])),
    ]
    if type(beside(world, Proposals)) is not Proposals:
        rules.append(
            ("proposals: offer asks for a task, proposed makes one", lambda: proposals(world, mechanism, few[:5]))
        )
    for rule, look in rules:
        found.append(verdict_on(rule, look))
        yield found[-1]
    found.append(_splits(world, num_packs))
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
    with closing(copy.deepcopy(world)) as other:
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


def proposals(world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack]) -> Broken:
    """What is wrong with tasks that are made of what a demonstrator proposes, and of garbage (`Proposals`)."""
    for pack in packs:
        with first_task(world, pack) as (own, _):
            offer: Any = beside(own, Proposals).offer
            if not isinstance(offer, str):
                raise Violation(f"offer is a {type(offer).__name__}; expected text")
            texts: list[str] = [*GARBAGE]
            try:
                teacher = beside(world, Players).demonstrator(pack)
            except NotImplementedError:
                said = None
            else:
                system = mechanism.prepare(mechanism.empty(), own.rules, offer).system
                said = teacher.propose((Message(Role.SYSTEM, system), Message(Role.USER, offer)), random.Random(0))
                texts.insert(0, said)
            task, before = pack.tasks[-1], repr(pack.tasks[-1])
            for text in texts:
                made: Any = beside(own, Proposals).proposed(text, task)
                if repr(task) != before:
                    yield f"proposed({text!r:.40}) changes the pack's own task; make one by dataclasses.replace"
                if made is None and text is said:
                    yield f"the demonstrator proposes {said!r:.60}, which is no task; write its `propose` (of a Play: `proposal`)"
                if not isinstance(made, Task | None):
                    raise Violation(f"proposed({text!r:.40}) gave a {type(made).__name__}; expected a Task or None")
                rules = (
                    beside(own, HiddenRules).hidden_rule(replace(pack, tasks=(one,))) for one in (made or task, task)
                )
                if len(set(map(repr, rules))) > 1:
                    yield f"proposed({text!r:.40}) changes what the pack hides; a proposal may not"
