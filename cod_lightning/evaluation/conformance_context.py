"""What a context mechanism breaks of its contract: `python -m cod_lightning check --context X`. See `conformance.py`."""

import json
import math
from collections.abc import Iterator
from typing import Any

from cod_lightning.contexts.base import (
    Answer,
    Budget,
    ContextMechanism,
    ContextUpdate,
    Entries,
    InTask,
    Prepared,
    Scripted,
    Stored,
    UpdateDialogue,
    Words,
    beside,
)
from cod_lightning.evaluation.conformance_turns import GARBAGE, misplaced
from cod_lightning.evaluation.verdicts import Broken, Verdict, verdict_on
from cod_lightning.rollout.boundaries import checked_history, checked_intervention, context_text
from cod_lightning.rollout.byte_chat import byte_chat
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Message, Role

_NOTE = "alpha=1\nbeta=2"
_KINDS = (InTask, Scripted, Words, Entries, Budget, Stored)


def check_context(mechanism: ContextMechanism) -> Iterator[Verdict]:
    """Verdicts on a context mechanism."""
    for rule, look in (
        ("the empty state has no text, and is shown without harm", lambda: _empty(mechanism)),
        ("a note that is adopted can be read again", lambda: _adopted(mechanism)),
        ("a state is dumped and loaded to the same", lambda: _loaded(mechanism)),
        ("an update accepts what write() answers, and survives any answer", lambda: _updated(mechanism)),
        ("a task goes on after any response, and keeps no control token", lambda: _within(mechanism)),
        ("methods change no state in place", lambda: _in_place(mechanism)),
    ):
        yield verdict_on(rule, look)
    if not _takes_notes(mechanism):
        remark = "it has no Scripted among its companions: there are no references with it, and no warm start of a tiny policy"
        yield Verdict("policies without a model can write its contexts", remark=remark, look=True)


def _takes_notes(mechanism: ContextMechanism) -> bool:
    """Whether policies without a model can write its contexts."""
    return type(beside(mechanism, Scripted)) is not Scripted


def _noted(mechanism: ContextMechanism) -> Any:
    """The state that holds the note; the empty one where the mechanism takes none."""
    return beside(mechanism, Scripted).adopt(_NOTE) if _takes_notes(mechanism) else mechanism.empty()


def _solved(mechanism: ContextMechanism, state: object) -> Episode:
    text = mechanism.text(state)
    return Episode(
        kind=EpisodeKind.SOLVE, position=0, status=EpisodeStatus.COMPLETED, reward=1.0, success=True, feedback="well done",
        context_before=text, context_after=text,
    )  # fmt: skip


def _opening(dialogue: UpdateDialogue) -> list[Message]:
    messages = next(dialogue)
    assert not isinstance(messages, str), "update() has to begin with messages"
    return list(messages)


def _empty(mechanism: ContextMechanism) -> Broken:
    yield from misplaced(mechanism, _KINDS)
    if not isinstance(words := beside(mechanism, Words).words(), tuple):
        yield f"words() is a {type(words).__name__}; expected a tuple, in the same order in every process"
    state = mechanism.empty()
    if mechanism.text(state):
        yield f"text(empty()) is {mechanism.text(state)!r:.60}; expected an empty string"
    if not isinstance(state, mechanism.State):
        yield f"empty() is a {type(state).__name__}; State is {mechanism.State.__name__}"
    prepared = mechanism.prepare(state, "the rules", "what is seen")
    if not isinstance(prepared, Prepared) or "the rules" not in prepared.system:
        yield "prepare gave no Prepared whose system text holds the rules"


def _adopted(mechanism: ContextMechanism) -> Broken:
    if not _takes_notes(mechanism):
        return
    state = _noted(mechanism)
    text, keys = mechanism.text(state), [entry.key for entry in beside(mechanism, Entries).entries(state)]
    if missing := [line for line in _NOTE.splitlines() if line not in text]:
        yield f"text(adopt(note)) lacks {missing[0]!r}"
    if twice := [key for key in keys if keys.count(key) > 1]:
        yield f"two entries have the key {twice[0]!r}"


def _loaded(mechanism: ContextMechanism) -> Broken:
    for state in (mechanism.empty(), _noted(mechanism)):
        kept = beside(mechanism, Stored).dump(state)
        json.loads(kept)
        if beside(mechanism, Stored).load(kept) != state:
            yield f"the state {state!r:.80} is another one after dump and load"


def _updated(mechanism: ContextMechanism) -> Broken:
    if not mechanism.updates:
        return
    scripted = beside(mechanism, Scripted)
    for text in (None, *GARBAGE) if _takes_notes(mechanism) else GARBAGE:
        state = _noted(mechanism)
        dialogue = mechanism.update(state, "the rules", _solved(mechanism, state), byte_chat())
        messages = _opening(dialogue)
        if _takes_notes(mechanism) and not scripted.asks(messages):
            yield "asks() does not know the messages that update() begins with"
            return
        for _ in range(100):
            said = scripted.write("gamma=3", messages) if text is None else text
            try:
                asked = dialogue.send(Answer(response=said, cut_off=False))
                messages += [Message(Role.ASSISTANT, said), Message(Role.USER, str(asked))]
            except StopIteration as ended:
                update = ended.value
                break
        else:
            yield f"an update that is answered {text or 'by write()'!r:.40} again and again has more than 100 turns"
            return
        if not isinstance(update, ContextUpdate) or not isinstance(update.state, mechanism.State):
            yield f"update returned a {type(update).__name__}; expected a ContextUpdate with a {mechanism.State.__name__}"
        elif not (math.isfinite(update.reward) and update.reward <= 0):
            yield f"the reward of an update is {update.reward}; expected at most 0"
        elif text is None and not (update.parsed and "gamma=3" in mechanism.text(update.state)):
            yield f"the answer of write() is not taken: {update.reason or mechanism.text(update.state)!r:.100}"
        elif "<|im_end|>" in mechanism.text(update.state):
            yield "a control token is kept in the context; refuse what tokens.control_token(text) finds"


def _within(mechanism: ContextMechanism) -> Broken:
    """A task as `rollout/episode.py` plays it: the mechanism may answer each response, and replace the dialogue after it."""
    chat, scripted, in_task = byte_chat(), beside(mechanism, Scripted), beside(mechanism, InTask)
    for text in (None, *GARBAGE):
        if text == "\ud800":  # no tokenizer decodes to half a surrogate pair
            continue
        prepared = mechanism.prepare(_noted(mechanism), "the rules", "what is seen")
        state, dialogue = prepared.state, (Message(Role.SYSTEM, prepared.system), Message(Role.USER, "what is seen"))
        for _ in range(5):
            said = scripted.respond(lambda _: "an action", lambda _: "gamma=3", dialogue) if text is None else text
            found = in_task.on_turn(state, said, chat)
            if found is not None:
                state = checked_intervention(found, mechanism).state
            seen = "what came of it" if found is None or found.reply is None else found.reply
            dialogue = (*dialogue, Message(Role.ASSISTANT, said), Message(Role.USER, seen))
            if (history := in_task.before_turn(state, "the rules", dialogue, chat)) is not None:
                history = checked_history(history, mechanism, dialogue)
                state, dialogue = history.state, history.messages
        if "<|im_end|>" in context_text(mechanism, state):
            yield "a control token is kept in the context; refuse what tokens.control_token(text) finds"


def _in_place(mechanism: ContextMechanism) -> Broken:
    state, in_task = _noted(mechanism), beside(mechanism, InTask)
    before, episode = beside(mechanism, Stored).dump(state), _solved(mechanism, state)
    mechanism.prepare(state, "the rules", "what is seen")
    in_task.on_turn(state, "a response", byte_chat())
    texts = ("the rules", "what is seen", "a response", "what came of it")
    roles = (Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.USER)
    in_task.before_turn(state, "the rules", tuple(map(Message, roles, texts)), byte_chat())
    mechanism.feedback(state, episode)
    if mechanism.updates and _takes_notes(mechanism):
        opening = _opening(mechanism.update(state, "the rules", episode, byte_chat()))
        beside(mechanism, Scripted).write("gamma=3", opening)
    if beside(mechanism, Stored).dump(state) != before:
        yield "a method changed the state that it was given"
