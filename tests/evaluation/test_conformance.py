"""Every rule of the contract is broken on purpose by one world or context, and found."""

import json
import random
import re
import time
from dataclasses import dataclass, replace
from types import SimpleNamespace

import msgspec
import pytest

from cod_lightning.commands.worlds import own_worlds, parse_world, world_parser
from cod_lightning.contexts import HintContext, default_mechanism
from cod_lightning.contexts.base import ContextUpdate, Stored, TextState
from cod_lightning.contexts.hint import HintScripted
from cod_lightning.contexts.worded import WordedWords
from cod_lightning.envs.base import Traits, Vocabulary, beside
from cod_lightning.envs.dataset import DatasetWorld
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.wording import COLOURS
from cod_lightning.envs.levers.world import LeverTask
from cod_lightning.envs.task_world import TaskVocabulary
from cod_lightning.evaluation import conformance
from cod_lightning.evaluation.conformance import check_world
from cod_lightning.evaluation.conformance_context import check_context
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.types import Split


def broken(world):
    found = check_world(world, HintContext("compact"), num_packs=6, pack_size=3)
    return {verdict.rule: verdict.broken for verdict in found if verdict.broken}


class Impure(Levers):
    def sample_pack(self, *, split, index, num_tasks, seed=0):
        return super().sample_pack(
            split=split, index=index, num_tasks=num_tasks, seed=random.SystemRandom().randrange(9**9)
        )


class OneSplit(Levers):
    def sample_pack(self, *, split, index, num_tasks, seed=0):
        return super().sample_pack(split=Split.TRAIN, index=index, num_tasks=num_tasks, seed=seed)


class Constant(Levers):
    def sample_pack(self, *, split, index, num_tasks, seed=0):
        pack = super().sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed)
        tasks = (replace(task, spec=replace(task.spec, colours=COLOURS)) for task in pack.tasks)
        return replace(pack, world_seed=0, tasks=tuple(tasks))


class OneShort(Levers):
    def sample_pack(self, *, split, index, num_tasks, seed=0):
        return super().sample_pack(split=split, index=index, num_tasks=max(1, num_tasks - 1), seed=seed)


class Chatty(Levers):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=options)[0], {"hint": 1}


class Shared(Levers):
    def __deepcopy__(self, memo):
        return self


class Strict(Levers):
    def step(self, action):
        return super().step({"<answer>1</answer>": action, "?": action}[action])


class Generous(Levers):
    def step(self, action):
        shown, reward, terminated, truncated, info = super().step(action)
        return shown, reward + 2.0, terminated, truncated, info


class Endless(Levers):
    def step(self, action):
        return "go on", 0.0, False, False, {}


class MuteVocabulary(TaskVocabulary):
    def words(self):
        return super().words()[1:]


class Mute(Levers):
    companions = (MuteVocabulary, *Levers.companions)


class Echo(Levers):
    def step(self, action):
        _, *rest = super().step(action)
        return action, *rest


class Global(Levers):
    def step(self, action):
        random.random()
        return super().step(action)


class Slow(Levers):
    def reset(self, *, seed=None, options=None):
        time.sleep(0.002)
        return super().reset(seed=seed, options=options)


class Packless(Levers):
    def sample_pack(self, *, split, index, num_tasks, seed=0):
        raise ValueError("no packs")


class Raising(Levers):
    def reset(self, *, seed=None, options=None):
        raise RuntimeError("no database")


class Leaving(Levers):
    def step(self, action):
        raise SystemExit(3)


class Seedless(Levers):
    def sample_pack(self, split, index, num_tasks):
        return super().sample_pack(split=split, index=index, num_tasks=num_tasks)


class UnorderedVocabulary(TaskVocabulary):
    def words(self):
        return set(super().words())


class Unordered(Levers):
    companions = (UnorderedVocabulary, *Levers.companions)


class Nameless(Levers):
    def __init__(self, protocol):
        super().__init__(protocol=protocol)
        self.name = "two\nlines"


class Changing(Levers):
    """Sorts what it was handed once a task of it is won, for all who play the pack after it."""

    def step(self, action):
        answer = super().step(action)
        if self.success:
            object.__setattr__(self._task, "colours", tuple(sorted(self._task.colours)))
        return answer


@pytest.mark.parametrize(
    ("world", "rule", "evidence"),
    [
        (Leaving, "reset, rules and step", "raised SystemExit: 3"),
        (Seedless, "sample_pack draws packs", "unexpected keyword argument 'seed'"),
        (Unordered, "name, max_turns, properties and words()", "words() returned a set"),
        (Nameless, "packs have the asked length", "name is 'two\\nlines'"),
        (Changing, "playing leaves tasks as they were", "a task of pack levers-4/train/0/"),
        (Impure, "sample_pack is a pure", "drawn again"),
        (Constant, "sample_pack is a pure", "packs hide the same"),
        (OneSplit, "packs of different splits", "split_of_text"),
        (OneShort, "packs have the asked length", "2 tasks was asked for and one of 1"),
        (Chatty, "reset, rules and step", "info {'hint': 1}"),
        (Shared, "a deep copy", "the same object again"),
        (Strict, "any text is a legal action", "raised KeyError"),
        (Generous, "any text is a legal action", "outside reward_range"),
        (Endless, "any text is a legal action", "goes on after max_turns"),
        (Mute, "a closed vocabulary", "which words() does not list"),
        (Echo, "any text is a legal action", "answers.quoted"),
        (Global, "draws leave", "derive_seed"),
        (Raising, "reset, rules and step", "raised RuntimeError: no database"),
        (Packless, "sample_pack draws packs", "raised ValueError: no packs"),
    ],
)
def test_a_world_that_breaks_a_rule_is_named_with_an_example(world, rule, evidence):
    found = broken(world(protocol="compact"))
    examples = next(examples for name, examples in found.items() if name.startswith(rule))
    assert evidence in " ".join(examples)


def test_a_slow_world_is_named_and_not_played_for_hours(monkeypatch):
    monkeypatch.setattr(conformance, "SLOW_S", 0.001)
    slow = Slow(protocol="compact")
    assert re.search(r"reset takes 0\.\d\d s", str(broken(slow)["calls take less than 0.001 s"]))
    slow.traits = Traits(blocking=True)
    assert "reset" not in str(broken(slow).get("calls take less than 0.001 s"))


@dataclass(frozen=True)
class Secret(LeverTask):
    secret: int

    @staticmethod
    def kept_in(task, secret):
        values = {name: getattr(task.spec, name) for name in LeverTask.__dataclass_fields__}
        return replace(task, spec=Secret(**values, secret=secret))


class Telling(Levers):
    @property
    def rules(self):
        return f"{super().rules} {self.evidence}"

    def reset(self, *, seed=None, options=None):
        self.evidence = f"try-{options['task'].spec.secret}"
        return super().reset(seed=seed, options=options)

    def sample_pack(self, *, split, index, num_tasks, seed=0):
        pack = super().sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed)
        return replace(pack, tasks=tuple(Secret.kept_in(task, index) for task in pack.tasks))


def test_rules_that_may_spell_what_is_hidden_are_shown_to_a_person():
    found = check_world(Telling(protocol="natural"), HintContext("compact"), num_packs=6, pack_size=3)
    (spelled,) = [verdict for verdict in found if verdict.rule == "rules do not spell what is hidden"]
    assert spelled.look
    assert "as its specification does" in spelled.remark


def test_packs_that_mostly_ask_again_are_shown_to_a_person(tmp_path):
    for num_tasks, look in ((1, True), (3, False)):
        rows = [{"prompt": f"{g}, {n}?", "answer": n, "group": g} for g in range(30) for n in range(num_tasks)]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        world = DatasetWorld(str(tmp_path / "rows.jsonl"), group="group")
        found = check_world(world, HintContext(), num_packs=6, pack_size=3)
        (repeated,) = [verdict for verdict in found if verdict.rule == "tasks of a pack differ"]
        assert (repeated.look, not repeated.broken) == (look, True)


class Leaking(Levers):
    """Shows what the oracle would note, before the first answer."""

    def reset(self, *, seed=None, options=None):
        shown, info = super().reset(seed=seed, options=options)
        note = " ".join(f"{lever}={colour}" for lever, colour in enumerate(options["task"].spec.colours, start=1))
        return f"{shown} {note}", info


def test_an_observation_that_shows_what_the_oracle_notes_is_found():
    found = broken(Leaking(protocol="compact"))
    assert "which is what the oracle notes" in " ".join(found["without a context an agent cannot know what is hidden"])


class LateWord(Levers):
    def step(self, action):
        shown, reward, *rest = super().step(action)
        return (f"{shown} hooray" if reward else shown), reward, *rest


class Wordy(HintContext):
    def prepare(self, state, rules, observation):
        return super().prepare(state, f"{rules} please", observation)


def test_a_word_that_only_a_success_or_the_context_shows_is_found():
    assert "the world shows 'hooray'" in str(broken(LateWord(protocol="compact")))
    found = check_world(Levers(protocol="compact"), Wordy("compact"), num_packs=6, pack_size=3)
    assert "Wordy.prepare shows 'please'" in " ".join(one for verdict in found for one in verdict.broken)


HIDING = sorted(set(own_worlds()) - {"terminal_reference"})
QUICK = {"levers", "doors", "frozen_lake_3x3"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in HIDING])
def test_shipped_worlds_keep_the_rules(name):
    world = parse_world(world_parser("check", ""), ["--env", name]).env
    found = list(
        check_world(world, default_mechanism(compact=bool(beside(world, Vocabulary).words())), num_packs=3, pack_size=3)
    )
    assert not [verdict for verdict in found if verdict.broken]


@pytest.mark.parametrize("world", [Levers(protocol="compact"), Levers()])
def test_a_world_that_keeps_the_rules_is_found_to(world):
    mechanism = HintContext("compact" if beside(world, Vocabulary).words() else "natural", response_limit=None)
    found = list(check_world(world, mechanism, num_packs=20, pack_size=3))
    assert not [verdict for verdict in found if verdict.broken]
    assert any(verdict.remark.startswith("success by position") for verdict in found)


@pytest.mark.parametrize(
    "mechanism",
    [HintContext("compact"), HintContext("natural"), NotebookContext("compact"), NotebookContext("natural")],
)
def test_shipped_contexts_keep_their_rules(mechanism):
    assert not [verdict for verdict in check_context(mechanism) if verdict.broken]


class ListingWords(WordedWords):
    def words(self):
        return ["hint"]


class Listing(HintContext):
    """Gives its words as a list."""

    companions = (ListingWords, *HintContext.companions)


class Loud(HintContext):
    def empty(self):
        return TextState("hello")


class ForgetfulScripted(HintScripted):
    def adopt(self, note):
        return TextState("")


class Forgetful(HintContext):
    companions = (ForgetfulScripted, *HintContext.companions)


class UndumpedStored(Stored):
    def load(self, text):
        return TextState("other")


class Undumped(HintContext):
    companions = (UndumpedStored, *HintContext.companions)


class DeafScripted(HintScripted):
    def write(self, note, messages):
        return "no"


class Deaf(HintContext):
    companions = (DeafScripted, *HintContext.companions)


class Paying(HintContext):
    def update(self, state, rules, episode, tokens):
        ended = yield from super().update(state, rules, episode, tokens)
        return msgspec.structs.replace(ended, reward=1.0)


class Raw(HintContext):
    def update(self, state, rules, episode, tokens):
        answer = yield self._opening(state)
        return ContextUpdate(state=TextState(answer.response), reward=0.0, parsed=True)

    def _opening(self, state):
        blank = SimpleNamespace(control_token=lambda text: "", count=len)
        from cod_lightning.evaluation.conformance_context import _solved

        return next(super().update(state, "the rules", _solved(self, state), blank))


class Notes(msgspec.Struct):
    text: str = ""


class MutableScripted(HintScripted):
    def adopt(self, note):
        return Notes(note)


class Mutable(HintContext):
    companions = (MutableScripted, *HintContext.companions)
    State = Notes

    def empty(self):
        return Notes()

    def text(self, state):
        return state.text

    def feedback(self, state, episode):
        state.text += "!"
        return state


@pytest.mark.parametrize(
    ("mechanism", "evidence"),
    [
        (Listing, "words() is a list; expected a tuple"),
        (Loud, "expected an empty string"),
        (Forgetful, "text(adopt(note)) lacks"),
        (Undumped, "is another one after dump and load"),
        (Deaf, "the answer of write() is not taken"),
        (Paying, "expected at most 0"),
        (Raw, "a control token is kept"),
        (Mutable, "changed the state"),
    ],
)
def test_a_context_that_breaks_a_rule_is_named_with_an_example(mechanism, evidence):
    found = [example for verdict in check_context(mechanism("natural")) for example in verdict.broken]
    assert evidence in " ".join(found)
