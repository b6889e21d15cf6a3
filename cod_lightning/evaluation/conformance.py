"""What a world or a context mechanism breaks of its contract, found by playing it: `python -m cod_lightning check`.

Each rule is a generator that yields a sentence for everything that breaks it. What a rule's own code meets (an exception of the
world's) is such a sentence as well.
"""

import copy
import json
import math
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cod_lightning.contexts.base import Answer, ContextMechanism, ContextUpdate, Prepared, UpdateDialogue
from cod_lightning.envs.base import Reference, TextEnv
from cod_lightning.evaluation.condition_kinds import ConditionKind
from cod_lightning.evaluation.references import play_reference, summarise
from cod_lightning.rollout.byte_chat import byte_chat
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Lifecycle, Message, Pack, Role, Split

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
SLOW_S = 0.1
"""A step of a world that takes longer is named: a rollout makes thousands of them."""
_MOST_EXAMPLES = 3
_LEAST_GAIN = 0.05


@dataclass(frozen=True)
class Verdict:
    """One rule of the contract, and what was found."""

    rule: str
    broken: tuple[str, ...] = ()
    """The first few violations, one sentence each."""
    remark: str = ""
    """What is no violation and worth knowing."""


Broken = Iterator[str]


def check_world(world: TextEnv, mechanism: ContextMechanism, num_packs: int, pack_size: int) -> Iterator[Verdict]:
    """Verdicts on a world, one by one; `num_packs` packs of `pack_size` tasks are played by each reference that it has."""
    packs: list[Pack] = []

    def draw() -> Broken:
        asked = {"split": Split.TRAIN, "num_tasks": pack_size}
        packs.extend(world.sample_pack(index=index, **asked) for index in range(num_packs))
        yield from ()

    yield (drawn := _verdict("sample_pack draws packs", draw))
    if drawn.broken:
        return
    few, broken = packs[:20], 0
    for rule, look in (
        ("sample_pack is a pure function of its arguments", lambda: _impure(world, few)),
        ("packs of different splits share no world", lambda: _shared(world, num_packs, pack_size)),
        ("packs have the asked length, and ids of their own", lambda: _lengths(world)),
        ("reset and rules give text, and rules are the same for all tasks of a pack", lambda: _rules(world, few)),
        ("rules do not spell what is hidden", lambda: _spelled(world, few)),
        ("a deep copy is a snapshot: it steps alike and apart", lambda: _copies(world, few)),
        ("any text is a legal action, and a task ends within max_turns", lambda: _garbage(world, few[:5])),
        ("a closed vocabulary lists every word that is shown", lambda: _words(world, few)),
        ("draws leave Python's global generator alone", lambda: _global_draws(world)),
    ):
        broken += bool((verdict := _verdict(rule, look)).broken)
        yield verdict
    yield _slow(world, few)
    if broken:  # a world without an end would be played for ever
        yield Verdict("play by references", remark="left out until the rules above hold")
    else:
        yield from _played(world, mechanism, packs)


def check_context(mechanism: ContextMechanism) -> Iterator[Verdict]:
    """Verdicts on a context mechanism."""
    for rule, look in (
        ("the empty state has no text, and is shown without harm", lambda: _empty(mechanism)),
        ("a note that is adopted can be read again", lambda: _adopted(mechanism)),
        ("a state is dumped and loaded to the same", lambda: _loaded(mechanism)),
        ("an update accepts what write() answers, and survives any answer", lambda: _updated(mechanism)),
        ("methods change no state in place", lambda: _in_place(mechanism)),
    ):
        yield _verdict(rule, look)


def _verdict(rule: str, look: Callable[[], Broken]) -> Verdict:
    found: list[str] = []
    try:
        for one in look():
            found.append(one)
            if len(found) == _MOST_EXAMPLES:
                break
    except Exception as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        at = f" ({where.tb_frame.f_code.co_filename}:{where.tb_lineno})" if where else ""
        found.append(f"raised {type(error).__name__}: {str(error)[:200]}{at}")
    return Verdict(rule, tuple(found))


# ---------------------------------------------------------------------- worlds


def _impure(world: TextEnv, packs: Sequence[Pack]) -> Broken:
    other = copy.deepcopy(world)
    for index, pack in enumerate(packs):
        asked = {"split": pack.split, "index": index, "num_tasks": len(pack)}
        if other.sample_pack(**asked) != pack:
            yield f"pack {pack.id} is another one when it is drawn again"
        other.reset(options={"task": pack.tasks[0]})
        if other.sample_pack(**asked) != pack:
            yield f"pack {pack.id} is another one after a task was begun"
    if len(packs) > 1 and len({repr([task.spec for task in pack.tasks]) for pack in packs}) == 1:
        yield "every index draws the same pack"
    elif len(packs) > 1 and len({pack.world_seed for pack in packs}) == 1:
        yield f"every index draws a pack of world_seed {packs[0].world_seed}, so packs hide the same and weights can learn it"


def _shared(world: TextEnv, num_packs: int, pack_size: int) -> Broken:
    seen: dict[str, str] = {}
    for split in Split:
        for index in range(num_packs):
            pack = world.sample_pack(split=split, index=index, num_tasks=pack_size)
            key = repr([task.spec for task in pack.tasks])
            if seen.setdefault(key, split) != split:
                yield f"a pack of {split} has the tasks of one of {seen[key]}; decide by split_of_text(what is hidden)"
                return


def _lengths(world: TextEnv) -> Broken:
    ids = set[str]()
    for index, length in enumerate((1, 2, 9)):
        pack = world.sample_pack(split=Split.TEST, index=index, num_tasks=length)
        if len(pack) != length:
            yield f"a pack of {length} tasks was asked for and one of {len(pack)} came"
        if len({task.id for task in pack.tasks}) < len(pack):
            yield f"two tasks of pack {pack.id} have the same id"
        if pack.id in ids:
            yield f"two packs have the id {pack.id}"
        ids.add(pack.id)


def _rules(world: TextEnv, packs: Sequence[Pack]) -> Broken:
    for pack in packs:
        own = copy.deepcopy(world)
        texts = set[str]()
        for task in pack.tasks:
            shown, info = own.reset(options={"task": task})
            if not isinstance(shown, str) or info != {}:
                yield f"reset gave {type(shown).__name__} and info {info!r:.60}; expected a text and an empty dict"
                return
            texts.add(own.rules)
        if len(texts) > 1:
            yield f"rules differ between tasks of pack {pack.id}"


def _spelled(world: TextEnv, packs: Sequence[Pack]) -> Broken:
    """A word of the rules that only some packs have, and that is a value of the pack's specification."""
    words: list[set[str]] = []
    for pack in packs:
        own = copy.deepcopy(world)
        own.reset(options={"task": pack.tasks[0]})
        words.append(set(re.findall(r"\w+", own.rules)))
    common = set[str].intersection(*words)
    for pack, found in zip(packs, words, strict=True):
        values = set[str].intersection(*(set(re.findall(r"\w+", repr(task.spec))) for task in pack.tasks))
        if told := sorted((found - common) & values):
            yield f"the rules of pack {pack.id} say {told[0]!r}, which its specification has and other packs' rules lack"


def _copies(world: TextEnv, packs: Sequence[Pack]) -> Broken:
    for pack in packs:
        own = copy.deepcopy(world)
        own.reset(options={"task": pack.tasks[0]})
        first, second = copy.deepcopy(own), copy.deepcopy(own)
        if first is own:
            yield "copy.deepcopy gives the same object again"
            return
        steps = [one.step("<answer>1</answer>") for one in (first, second, own)]
        if steps[0] != steps[1] or steps[0] != steps[2]:
            yield f"in pack {pack.id} a copy answers otherwise than its original"


def _garbage(world: TextEnv, packs: Sequence[Pack]) -> Broken:
    for pack in packs:
        for text in GARBAGE:
            own = copy.deepcopy(world)
            own.reset(options={"task": pack.tasks[0]})
            try:
                yield from _to_the_end(own, text)
            except Exception as error:
                yield f"the action {text!r:.40} raised {type(error).__name__}: {str(error)[:120]}"


def _to_the_end(own: TextEnv, text: str) -> Broken:
    low, high = own.reward_range
    for _ in range(own.max_turns):
        shown, reward, terminated, truncated, info = own.step(text)
        if not isinstance(shown, str) or info != {}:
            yield f"after {text!r:.40} step gave {type(shown).__name__} and info {info!r:.40}"
        elif "<|im_end|>" in shown:
            yield "a response's control tokens are shown again; repeat it only through answers.quoted"
        if not (math.isfinite(reward) and low <= reward <= high):
            yield f"after {text!r:.40} the reward is {reward}, outside reward_range {own.reward_range}"
        if not (terminated or truncated):
            if reward:
                yield f"a step that does not end the task gave reward {reward}; only the last one's counts"
            continue
        if terminated and truncated:
            yield "a step said terminated and truncated at once"
        if not isinstance(own.status, EpisodeStatus) or (own.status is EpisodeStatus.TRUNCATED) != bool(truncated):
            yield f"after the end the status is {own.status}, and truncated is {truncated}"
        return
    yield f"a task of the action {text!r:.40} again and again goes on after max_turns={own.max_turns}"


def _words(world: TextEnv, packs: Sequence[Pack]) -> Broken:
    words = world.words()
    if not words:
        return
    if len(set(words)) < len(words) or any(word.split() != [word] for word in words):
        yield "a word is listed twice, or is no single word"
    for pack in packs:
        own = copy.deepcopy(world)
        for task in pack.tasks:
            shown, _ = own.reset(options={"task": task})
            for method, text in (("reset", shown), ("rules", own.rules), ("step", own.step("?")[0])):
                if missing := set(text.split()) - set(words):
                    yield f"{method} shows {sorted(missing)[0]!r}, which words() does not list"


def _global_draws(world: TextEnv) -> Broken:
    before = random.getstate()
    own = copy.deepcopy(world)
    pack = own.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    own.reset(options={"task": pack.tasks[0]})
    own.step("?")
    if random.getstate() != before:
        yield "random.random() or the like was called; draw from random.Random(derive_seed(...))"


def _slow(world: TextEnv, packs: Sequence[Pack]) -> Verdict:
    taken: dict[str, list[float]] = {"sample_pack": [], "reset": [], "step": []}
    try:
        for index, pack in enumerate(packs):
            own = copy.deepcopy(world)
            for name, call in (
                ("sample_pack", lambda: own.sample_pack(split=Split.TRAIN, index=index, num_tasks=len(pack))),  # noqa: B023
                ("reset", lambda: own.reset(options={"task": pack.tasks[0]})),  # noqa: B023
                ("step", lambda: own.step("<answer>1</answer>")),  # noqa: B023
            ):
                begun = time.perf_counter()
                call()
                taken[name].append(time.perf_counter() - begun)
    except Exception as error:
        return Verdict("calls are quick", (f"raised {type(error).__name__}: {str(error)[:200]}",))
    medians = {name: statistics.median(times) for name, times in taken.items() if times}
    slow = tuple(f"{name} takes {median:.2f} s" for name, median in medians.items() if median > SLOW_S)
    shown = ", ".join(f"{name} {median * 1000:.2f} ms" for name, median in medians.items())
    return Verdict(f"calls take less than {SLOW_S:g} s", slow, shown)


def _played(world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack]) -> Iterator[Verdict]:
    """Lifecycles by the loop of the training: random, scripted without its context, scripted, oracle."""
    last: dict[ConditionKind, tuple[float, ...]] = {}
    leaks: list[str] = []
    for kind in (ConditionKind.RANDOM, ConditionKind.MEMORYLESS, ConditionKind.SCRIPTED, ConditionKind.ORACLE):
        try:
            world.reference(kind.reference or Reference.RANDOM, packs[0])
        except NotImplementedError:
            yield Verdict(f"{kind.value} play", remark="the world has no such reference")
            continue
        lives = list(play_reference(world, packs, kind, mechanism))
        row = summarise(kind, lives)
        success = tuple(estimate.mean for estimate in row.success)
        last[kind] = success
        broken = [*_failures(lives), *([f"{row.num_malformed} answers were malformed"] if row.num_malformed else [])]
        yield Verdict(
            f"{kind.value} play is legal",
            tuple(broken[:_MOST_EXAMPLES]),
            "success by position " + " ".join(f"{value:.2f}" for value in success),
        )
        if kind is ConditionKind.ORACLE:
            leaks = list(_told(lives))
    if (scripted := last.get(ConditionKind.SCRIPTED)) and scripted[-1] < scripted[0] + _LEAST_GAIN:
        yield Verdict(
            "later tasks profit from earlier ones",
            remark="scripted play is no better in the last task than in the first: is there anything that a context could carry?",
        )
    oracle, memoryless = last.get(ConditionKind.ORACLE), last.get(ConditionKind.MEMORYLESS)
    if oracle and memoryless:
        known = max(oracle) <= max(memoryless) + _LEAST_GAIN
        told = (
            "without any context the task is solved as by the oracle: do rules or observations tell what is hidden?",
        )
        yield Verdict(
            "without a context nobody knows what is hidden",
            (*leaks, *(told if known and max(oracle) > _LEAST_GAIN else ())),
        )


def _failures(lives: Sequence[Lifecycle]) -> Iterator[str]:
    for life in lives:
        for episode in life.episodes:
            if episode.error:
                yield f"{life.pack_id}, task {episode.position}: {episode.error[:200]}"


def _told(lives: Sequence[Lifecycle]) -> Iterator[str]:
    """Where the oracle's note stands word by word in what the first task shows before any answer."""
    for life in lives:
        first = life.episodes[0]
        note = next((e.context_after for e in life.episodes if e.kind is EpisodeKind.UPDATE and e.context_after), "")
        if note and first.turns and note in first.turns[0].observation:
            yield f"the first observation of pack {life.pack_id} contains what the oracle notes"
            return


# ---------------------------------------------------------------------- context mechanisms

_NOTE = "alpha=1\nbeta=2"


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
    state = mechanism.empty()
    if mechanism.text(state):
        yield f"text(empty()) is {mechanism.text(state)!r:.60}; expected an empty string"
    if not isinstance(state, mechanism.State):
        yield f"empty() is a {type(state).__name__}; State is {mechanism.State.__name__}"
    prepared = mechanism.prepare(state, "the rules", "what is seen")
    if not isinstance(prepared, Prepared) or "the rules" not in prepared.system:
        yield "prepare gave no Prepared whose system text holds the rules"


def _adopted(mechanism: ContextMechanism) -> Broken:
    text = mechanism.text(mechanism.adopt(_NOTE))
    if missing := [line for line in _NOTE.splitlines() if line not in text]:
        yield f"text(adopt(note)) lacks {missing[0]!r}"


def _loaded(mechanism: ContextMechanism) -> Broken:
    for state in (mechanism.empty(), mechanism.adopt(_NOTE)):
        kept = mechanism.dump(state)
        json.loads(kept)
        if mechanism.load(kept) != state:
            yield f"the state {state!r:.80} is another one after dump and load"


def _updated(mechanism: ContextMechanism) -> Broken:
    if not mechanism.updates:
        return
    for text in (None, *GARBAGE):
        state = mechanism.adopt(_NOTE)
        dialogue = mechanism.update(state, "the rules", _solved(mechanism, state), byte_chat())
        messages = _opening(dialogue)
        if not mechanism.asks(messages):
            yield "asks() does not know the messages that update() begins with"
            return
        for _ in range(100):
            said = mechanism.write("gamma=3", messages) if text is None else text
            try:
                asked = dialogue.send(Answer(response=said, num_tokens=len(said), cut_off=False))
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


def _in_place(mechanism: ContextMechanism) -> Broken:
    state = mechanism.adopt(_NOTE)
    before, episode = mechanism.dump(state), _solved(mechanism, state)
    mechanism.prepare(state, "the rules", "what is seen")
    mechanism.on_turn(state, "a response", byte_chat())
    mechanism.feedback(state, episode)
    if mechanism.updates:
        mechanism.write("gamma=3", _opening(mechanism.update(state, "the rules", episode, byte_chat())))
    if mechanism.dump(state) != before:
        yield "a method changed the state that it was given"
