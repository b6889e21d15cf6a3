"""What a world breaks of its contract where an agent proposes tasks: `Proposals`. See `conformance.py`."""

import copy
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cod_lightning.contexts.base import ContextMechanism, Words
from cod_lightning.envs.base import Players, Proposals, TextEnv, Vocabulary, beside
from cod_lightning.evaluation.conformance_form import begun
from cod_lightning.evaluation.conformance_turns import GARBAGE
from cod_lightning.evaluation.verdicts import Broken, Verdict, Violation, verdict_on
from cod_lightning.types import Message, Pack, Role, Task


def verdict_on_proposals(
    world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack], hidden: Sequence[str]
) -> Verdict:
    """`hidden` names the fields of a task that are the same within every pack."""
    none: list[str] = []

    def look() -> Broken:
        for pack in packs:
            yield from _of_pack(world, mechanism, pack, hidden, none)

    return replace(verdict_on("proposals: offer asks for a task, proposed makes one", look), remark="".join(none[:1]))


def _of_pack(world: TextEnv, mechanism: ContextMechanism, pack: Pack, hidden: Sequence[str], none: list[str]) -> Broken:
    words = beside(world, Vocabulary).words()
    closed, known = bool(words), {*words, *beside(mechanism, Words).words()}
    own, offers = copy.deepcopy(world), list[str]()
    for task in pack.tasks:
        begun(own, task)
        offers.append(beside(own, Proposals).offer)
    offer: Any = offers[0]
    if not isinstance(offer, str):
        raise Violation(f"offer is a {type(offer).__name__}; expected text")
    if len(set(offers)) > 1:
        yield f"offer differs between tasks of pack {pack.id}"
    if not offer:
        none.append("the world asks for none")
        return
    for word in sorted(set(offer.split()) - known) if closed else ():
        yield f"offer says {word!r:.60}, which words() does not list"
    try:
        teacher = beside(world, Players).demonstrator(pack)
    except NotImplementedError:
        said: tuple[str, ...] = ()
    else:
        system = mechanism.prepare(mechanism.empty(), own.rules, offer).system
        said = (teacher.propose((Message(Role.SYSTEM, system), Message(Role.USER, offer)), random.Random(0)),)
    for text in said:
        for word in sorted(set(text.split()) - known) if closed else ():
            yield f"the demonstrator proposes {word!r:.60}, which words() does not list"
        if beside(own, Proposals).proposed(text, pack.tasks[0]) is None:
            yield f"the demonstrator proposes {text!r:.60}, which is no task; write its `propose` (of a Play: `proposal`)"
    for text in (*said, *GARBAGE):
        yield from _made(world, own, text, pack.tasks[-1], hidden, known if closed else set())


def _made(world: TextEnv, own: TextEnv, text: str, task: Task, hidden: Sequence[str], known: set[str]) -> Broken:
    """What is wrong with the task that this text makes of a pack's."""
    before = repr(task)
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
    for name in hidden:
        if repr(getattr(made.spec, name, None)) != repr(getattr(task.spec, name)):
            yield f"proposed({text!r:.40}) changes {name}, which is the same in all tasks of a pack; a proposal may not"
    shown = begun(copy.deepcopy(world), made)
    for word in sorted(set(shown.split()) - known) if known else ():
        yield f"the task of proposed({text!r:.40}) shows {word!r:.60}, which words() does not list"
