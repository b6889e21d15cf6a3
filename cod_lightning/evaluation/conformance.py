"""What a world breaks of its contract, found by playing it: `python -m cod_lightning check`.

Each rule is a generator that yields a sentence for everything that breaks it. What a rule's own code meets (an exception of the
world's) is such a sentence as well.
"""

import copy
import math
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import Reference, TextEnv
from cod_lightning.evaluation.condition_kinds import ConditionKind
from cod_lightning.evaluation.intervals import Estimate
from cod_lightning.evaluation.references import ReferenceRow, play_reference, summarise
from cod_lightning.types import EpisodeKind, EpisodeStatus, Lifecycle, Pack, Split

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
_LEAST_PACKS = 20
"""With fewer, a player without knowledge may solve all first tasks by luck."""


@dataclass(frozen=True)
class Verdict:
    """One rule of the contract, and what was found."""

    rule: str
    broken: tuple[str, ...] = ()
    """The first few violations, one sentence each."""
    remark: str = ""
    """What is no violation and worth knowing."""
    look: bool = False
    """Whether the remark is one for a person to judge: it may be a mistake, or meant so."""


Broken = Iterator[str]


def check_world(world: TextEnv, mechanism: ContextMechanism, num_packs: int, pack_size: int) -> Iterator[Verdict]:
    """Verdicts on a world, one by one; `num_packs` packs of `pack_size` tasks are played by each reference that it has."""
    packs: list[Pack] = []
    before: list[str] = []

    def draw() -> Broken:
        asked = {"split": Split.TRAIN, "num_tasks": pack_size, "seed": 0}
        packs.extend(world.sample_pack(index=index, **asked) for index in range(num_packs))
        before.extend(map(repr, packs))
        yield from ()

    yield (drawn := verdict_on("sample_pack draws packs", draw))
    if drawn.broken:
        return
    yield (slow := _slow(world, packs[:20]))
    few, broken = packs[: 2 if slow.broken else 20], bool(slow.broken)
    for rule, look in (
        ("sample_pack is a pure function of its arguments", lambda: _impure(world, few)),
        ("packs of different splits share no world", lambda: _shared(world, num_packs, pack_size)),
        ("packs have the asked length, and ids of their own", lambda: _lengths(world)),
        ("reset and rules give text, and rules are the same for all tasks of a pack", lambda: _rules(world, few)),
        ("a deep copy is a snapshot: it steps alike and apart", lambda: _copies(world, few)),
        ("any text is a legal action, and a task ends within max_turns", lambda: _garbage(world, few[:5])),
        ("a closed vocabulary lists every word that is shown", lambda: _words(world, mechanism, few)),
        ("draws leave Python's global generator alone", lambda: _global_draws(world)),
    ):
        broken += bool((verdict := verdict_on(rule, look)).broken)
        yield verdict
    yield _spelled(world, few)
    yield _repeated(packs)
    if broken:  # a world without an end would be played for ever
        yield Verdict("play by references", remark="left out until the rules above hold")
    else:
        yield from _played(world, mechanism, packs)
    changed = (
        f"a task of pack {pack.id} is another one now"
        for old, pack in zip(before, packs, strict=True)
        if old != repr(pack)
    )
    yield verdict_on("playing leaves tasks as they were, since all siblings play the same ones", lambda: changed)


def verdict_on(rule: str, look: Callable[[], Broken]) -> Verdict:
    """What is found, at most three examples; an exception is one."""
    found: list[str] = []
    try:
        for one in look():
            found.append(one)
            if len(found) == _MOST_EXAMPLES:
                break
    except (Exception, SystemExit) as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        at = f" ({where.tb_frame.f_code.co_filename}:{where.tb_lineno})" if where else ""
        found.append(f"raised {type(error).__name__}: {str(error)[:200]}{at}")
    return Verdict(rule, tuple(found))


# ---------------------------------------------------------------------- worlds


def _begun(world: TextEnv, pack: Pack) -> tuple[TextEnv, str]:
    """A copy of the world in the first task of the pack, and what it shows."""
    own = copy.deepcopy(world)
    return own, own.reset(options={"task": pack.tasks[0]})[0]


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
    if [world.name.strip()] != world.name.splitlines():
        yield f"name is {world.name!r:.60}; expected a line of text, since it is part of every pack's id"
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
        own, texts = copy.deepcopy(world), set[str]()
        for task in pack.tasks:
            shown, info = own.reset(options={"task": task})
            if not isinstance(shown, str) or info != {}:
                yield f"reset gave {type(shown).__name__} and info {info!r:.60}; expected a text and an empty dict"
                return
            texts.add(own.rules)
        if len(texts) > 1:
            yield f"rules differ between tasks of pack {pack.id}"


def _spelled(world: TextEnv, packs: Sequence[Pack]) -> Verdict:
    """A word of the rules that only some packs have, and that is a value of the pack's specification."""
    rule = "rules do not spell what is hidden"
    shown: list[set[str]] = []
    try:
        shown += [set(re.findall(r"\w+", _begun(world, pack)[0].rules)) for pack in packs]
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


def _copies(world: TextEnv, packs: Sequence[Pack]) -> Broken:
    for pack in packs:
        own, _ = _begun(world, pack)
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
            own, _ = _begun(world, pack)
            try:
                yield from _to_the_end(own, text)
            except (Exception, SystemExit) as error:
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


def _words(world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack]) -> Broken:
    words = world.words()
    if not words:
        return
    if not isinstance(words, tuple):
        yield f"words() gives a {type(words).__name__}; expected a tuple, whose order is the same in every process"
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
            system = mechanism.prepare(mechanism.empty(), own.rules, shown).system
            if missing := set(system.split()) - {*words, *mechanism.words(), *own.rules.split()}:
                yield f"{type(mechanism).__name__}.prepare shows {sorted(missing)[0]!r}, which its words() does not list"


def _global_draws(world: TextEnv) -> Broken:
    before = random.getstate()
    own, _ = _begun(world, world.sample_pack(split=Split.TRAIN, index=0, num_tasks=2))
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
    waits = (
        {"reset", "step"} if world.blocking else set[str]()
    )  # those of a blocking world wait in threads, and hold up no other
    slow = tuple(
        f"{name} takes {median:.2f} s" for name, median in medians.items() if median > SLOW_S and name not in waits
    )
    shown = ", ".join(f"{name} {median * 1000:.2f} ms" for name, median in medians.items())
    return Verdict(f"calls take less than {SLOW_S:g} s", slow, shown)


def _played(world: TextEnv, mechanism: ContextMechanism, packs: Sequence[Pack]) -> Iterator[Verdict]:
    """Lifecycles by the loop of the training: random, scripted without its context, scripted, oracle."""
    rows: dict[ConditionKind, ReferenceRow] = {}
    leaks: list[str] = []
    for kind in (ConditionKind.RANDOM, ConditionKind.MEMORYLESS, ConditionKind.SCRIPTED, ConditionKind.ORACLE):
        try:
            world.reference(kind.reference or Reference.RANDOM, packs[0])
        except NotImplementedError:
            yield Verdict(f"{kind.value} play", remark="the world has no such reference")
            continue
        lives = list(play_reference(world, packs, kind, mechanism))
        row = rows[kind] = summarise(kind, lives)
        broken = [
            *(
                f"{life.pack_id}, task {e.position}: {e.error[:200]}"
                for life in lives
                for e in life.episodes
                if e.error
            ),
            *_unknown(lives, world, mechanism),
            *([f"{row.num_malformed} answers were malformed"] if row.num_malformed else []),
        ]
        yield Verdict(
            f"{kind.value} play is legal",
            tuple(broken[:_MOST_EXAMPLES]),
            "success by position " + " ".join(f"{one.mean:.2f}" for one in row.success),
        )
        if kind is ConditionKind.ORACLE:
            leaks = list(_spelled_notes(world, packs, lives))
    least = _LEAST_GAIN * (world.reward_range[1] - world.reward_range[0])
    kinds = (ConditionKind.SCRIPTED, ConditionKind.ORACLE, ConditionKind.MEMORYLESS)
    scripted, oracle, memoryless = map(rows.get, kinds)
    if scripted:
        ends = (scripted.success[0], scripted.success[-1], scripted.reward[0], scripted.reward[-1])
        if not _gains(*ends, least):
            remark = "scripted play is no better in the last task than in the first: is there anything that a context could carry?"
            yield Verdict("later tasks profit from earlier ones", remark=remark, look=True)
    if oracle and memoryless and len(packs) >= _LEAST_PACKS:
        first = (memoryless.success[0], oracle.success[0], memoryless.reward[0], oracle.reward[0])
        if not _gains(*first, least / 10):
            leaks.append("the first task is solved as by the oracle: do rules or observations say what is hidden?")
    yield Verdict("without a context an agent cannot know what is hidden", tuple(leaks))


def _gains(before: Estimate, after: Estimate, reward_before: Estimate, reward_after: Estimate, least: float) -> bool:
    """Whether success rises, or reward by at least so much."""
    return after.mean - before.mean >= _LEAST_GAIN or reward_after.mean - reward_before.mean >= least


def _unknown(lives: Sequence[Lifecycle], world: TextEnv, mechanism: ContextMechanism) -> Iterator[str]:
    """Words outside a closed vocabulary; a trained policy would read `<unk>`."""
    known = {*world.words(), *mechanism.words()}
    if not world.words():
        return
    for episode in (episode for life in lives for episode in life.episodes):
        solving = episode.kind is EpisodeKind.SOLVE
        source = type(world if solving else mechanism).__name__
        texts = [
            episode.feedback if solving else "",
            *(text for turn in episode.turns for text in (turn.observation, turn.response)),
        ]
        if missing := [word for text in texts for word in text.split() if word not in known]:
            yield f"{source} shows, or its players answer, {missing[0]!r}, which words() does not list"
            return


def _spelled_notes(world: TextEnv, packs: Sequence[Pack], lives: Sequence[Lifecycle]) -> Iterator[str]:
    """Where what the oracle notes stands word by word in what the first task shows before any answer."""
    for pack, life in zip(packs, lives, strict=True):
        note = next((e.context_after for e in life.episodes if e.kind is EpisodeKind.UPDATE and e.context_after), "")
        own, shown = _begun(world, pack)
        for method, text in (("rules", own.rules), ("reset", shown)):
            if note and note in text:
                yield f"{method} of pack {pack.id} shows {note!r:.60}, which is what the oracle notes"
                return
