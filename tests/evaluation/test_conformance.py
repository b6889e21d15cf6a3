"""Every rule of the contract is broken on purpose by a world, and found; what may be meant so is shown to a person."""

import importlib.util
import random
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cod_lightning.commands.worlds import parse_world
from cod_lightning.contexts import HintContext, default_mechanism
from cod_lightning.envs.base import Players, Reference, Vocabulary, beside, split_of_text
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.wording import COLOURS
from cod_lightning.envs.levers.world import LeverPlayers
from cod_lightning.envs.task_world import TaskVocabulary
from cod_lightning.evaluation import conformance_turns
from cod_lightning.evaluation.conformance import check_world
from cod_lightning.evaluation.conformance_play import _spelled_notes
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Lifecycle, Pack, Split
from tests.cases import each
from tests.evaluation.sessions import Sessions
from tests.own_worlds import own_worlds
from tests.records import update

_FILE = Path(__file__).parents[2] / "examples" / "vending_machine" / "vending_machine.py"
_SPEC = importlib.util.spec_from_file_location("vending_machine_of_mistakes", _FILE)
example = sys.modules[_SPEC.name] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(example)
DRINKS, Order, Machine = example.DRINKS, example.Order, example.VendingMachine
FORM, DRAWS, OWN = "name, max_turns, properties", "sample_pack draws packs", "reset and step pass gymnasium's"
SAME, PURE, LEGAL = "a task is the same in a copy", "sample_pack is a pure function", "any text is a legal action"
PLAYED = "words() lists every word"


def verdicts(world, num_packs=4, mechanism=None):
    return list(check_world(world, mechanism or HintContext("compact"), num_packs=num_packs, pack_size=3))


def broken(world, num_packs=4):
    return {verdict.rule: verdict.broken for verdict in verdicts(world, num_packs) if verdict.broken}


def looks(world, num_packs=4):
    return {verdict.rule: verdict.remark for verdict in verdicts(world, num_packs) if verdict.look}


def levers(companion=None, **members):
    """Levers with other members, or another companion, in compact words."""
    more = {} if companion is None else {"companions": (companion, *Levers.companions)}
    return type("Own", (Levers,), members | more)(protocol="compact")


def machine(companion=None, **members):
    """The guide's machine with other members, or another companion."""
    more = {} if companion is None else {"companions": (companion, *Machine.companions)}
    return type("Own", (Machine,), members | more)()


def words(change):
    """A vocabulary whose words are changed so."""
    return type("OwnWords", (TaskVocabulary,), {"words": lambda self: change(TaskVocabulary.words(self))})


def packs_by(base, change):
    """`sample_pack` whose arguments are changed so."""

    def sample_pack(self, *, split, index, num_tasks, seed=0):
        asked = {"split": split, "index": index, "num_tasks": num_tasks, "seed": seed}
        return base.sample_pack(self, **(asked | change(asked)))

    return sample_pack


def stepped(base, change):
    """`step` whose five values are changed so; `change` has the world and the action first."""
    return lambda self, action: change(self, action, *base.step(self, action))


def raising(error):
    def method(self, *_, **__):
        raise error

    return method


def constant(self, *, split, index, num_tasks, seed=0):
    pack = Levers.sample_pack(self, split=split, index=index, num_tasks=num_tasks, seed=seed)
    tasks = (replace(task, spec=replace(task.spec, colours=COLOURS)) for task in pack.tasks)
    return replace(pack, world_seed=0, tasks=tuple(tasks))


def sorting(self, action, *answer):
    """Sorts what it was handed once a task of it is won, for all who play the pack after it."""
    if self.success:
        object.__setattr__(self._task, "colours", tuple(sorted(self._task.colours)))
    return answer


def drawing(self, action, *answer):
    random.random()
    return answer


def late_reset(self, task):
    turns = getattr(self, "turns", 0)
    Machine._start(self, task)
    self.turns = turns


def noting(self, task):
    """Keeps what was pressed in earlier tasks, and says nothing of it."""
    pressed = self.pressed or {}
    Machine._start(self, task)
    self.pressed = pressed


def of_the_class(self, task):
    self.task, self.turns, self.seen = task, 0, f"want={task.drink}"


def nameless(self):
    Machine.__init__(self)
    del self.name, self.max_turns


def two_lines(self):
    Machine.__init__(self)
    self.name = "two\nlines"


class Untyped(example.TaskWorld):
    name, max_turns, wording = "untyped", 2, example.Wording()
    rules = _start = _drawn = _observed = _acted = _feedback = sample_pack = None


def test_a_reference_that_raises_breaks_a_rule_and_the_others_are_played():
    class Untold(LeverPlayers):
        def reference(self, kind, pack):
            if kind is Reference.ORACLE:
                raise KeyError("rule")
            return super().reference(kind, pack)

    ((rule, (found,)),) = broken(levers(Untold)).items()
    assert (rule, found.startswith("raised KeyError: 'rule' (")) == ("oracle play is legal", True)


def test_every_copy_of_the_world_that_began_a_task_is_closed():
    world = Sessions()
    assert not [one for one in verdicts(world) if one.broken]
    assert world.held == []


@each(
    ("world", "rule", "evidence"),
    [
        (machine(__init__=nameless), FORM, "name is None; set it in __init__"),
        (machine(__init__=two_lines), FORM, "name is 'two\\nlines'"),
        (machine(words(lambda own: None)), FORM, "words() returned a NoneType; return a tuple"),
        (machine(rules=lambda self: "machine"), FORM, "rules is a method; put @property before it"),
        (Untyped(), FORM, "task_type is missing"),
        (levers(sample_pack=raising(ValueError("no packs"))), DRAWS, "raised ValueError: no packs"),
        (machine(sample_pack=lambda self, **_: []), DRAWS, "sample_pack returned a list; return a Pack"),
        (levers(sample_pack=lambda self, split, index, num_tasks: None), DRAWS, "unexpected keyword argument 'seed'"),
        (levers(step=raising(SystemExit(3))), OWN, "raised SystemExit: 3"),
        (levers(reset=lambda self, **more: (Levers.reset(self, **more)[0], [1])), OWN, "was not a dictionary"),
        (machine(reset=lambda self, **more: Machine.reset(self, **more)[0]), OWN, "not a tuple of the form"),
        (machine(step=stepped(Machine, lambda self, a, *five: five[:3])), OWN, "four or five element tuple"),
        (machine(step=stepped(Machine, lambda self, a, o, r, *m: (o, str(r), *m))), OWN, "must be a float"),
        (
            machine(step=stepped(Machine, lambda self, a, o, r, *m: (o, float("nan"), *m))),
            OWN,
            "the reward is nan; expected a number",
        ),
        (levers(__deepcopy__=lambda self, memo: self), SAME, "the same object again"),
        (levers(step=stepped(Levers, drawing)), SAME, "derive_seed"),
        (machine(_start=late_reset), SAME, "what does reset not set back?"),
        (machine(_start=noting, pressed=None), SAME, "without_world_memory()"),
        (machine(_start=of_the_class, pressed={}), SAME, "does the class"),
        (
            levers(sample_pack=packs_by(Levers, lambda _: {"seed": random.SystemRandom().randrange(9**9)})),
            PURE,
            "drawn again",
        ),
        (levers(sample_pack=constant), PURE, "packs hide the same"),
        (
            levers(sample_pack=packs_by(Levers, lambda asked: {"num_tasks": max(1, asked["num_tasks"] - 1)})),
            PURE,
            "2 tasks was asked for and one of 1",
        ),
        (levers(step=stepped(Levers, lambda self, a, o, r, *m: (o, r + 2.0, *m))), LEGAL, "outside reward_range"),
        (levers(step=lambda self, action: ("go on", 0.0, False, False, {})), LEGAL, "goes on after max_turns"),
        (machine(_start=late_reset), LEGAL, "does reset set back what counts turns?"),
        (levers(step=stepped(Levers, lambda self, a, o, *m: (a, *m))), LEGAL, "answers.quoted"),
        (
            machine(step=stepped(Machine, lambda self, a, o, r, *m: (o, r if m[0] or m[1] else 0.1, *m))),
            LEGAL,
            "gave reward 0.1; only the last one's counts",
        ),
        (levers(words(lambda own: (*own, own[0]))), FORM, "words() lists a word twice"),
        (levers(words(lambda own: own[1:])), PLAYED, "which words() does not list"),
        (
            levers(sample_pack=packs_by(Levers, lambda _: {"split": Split.TRAIN})),
            "packs of different splits",
            "split_of_text",
        ),
        (
            levers(step=stepped(Levers, sorting)),
            "playing leaves tasks as they were",
            "a task of pack levers-4/train/0/",
        ),
    ],
)
def test_a_world_that_breaks_a_rule_is_named_with_an_example(world, rule, evidence):
    found = broken(world, 2)
    examples = next(examples for name, examples in found.items() if name.startswith(rule))
    assert evidence in " ".join(examples)


def test_a_text_that_a_step_refuses_is_named_with_the_text():
    def strict(self, action):
        if "9999" in action:
            raise KeyError(action)
        return Levers.step(self, action)

    (found,) = broken(levers(step=strict)).values()
    assert found[0].startswith("the action '<answer>999")


def leaking(self, *, seed=None, options=None):
    """Shows what the oracle would note, before the first answer."""
    shown, info = Levers.reset(self, seed=seed, options=options)
    note = " ".join(f"{lever}={colour}" for lever, colour in enumerate(options["task"].spec.colours, start=1))
    return f"{shown} {note}", info


def test_an_observation_that_shows_the_oracles_note_and_splits_that_share_what_is_hidden_are_found():
    found = broken(levers(reset=leaking))
    assert "which is what the oracle notes" in " ".join(found["without a context an agent cannot know what is hidden"])
    found = broken(Unsplit())["packs of different splits share no world"]
    assert "have the world_seed of a training pack" in str(found)


def test_rules_that_list_whatever_may_be_hidden_are_no_leak():
    packs = [Levers().sample_pack(split=Split.TRAIN, index=index, num_tasks=2) for index in range(4)]
    lives = [
        Lifecycle(pack_id=pack.id, sibling=0, episodes=(update(0, context=note),))
        for pack, note in zip(packs, ("red", "blue", "red", "green"), strict=True)
    ]
    listing = levers(rules=property(lambda _: "One of red, blue and green opens the door."))
    assert list(_spelled_notes(listing, packs, lives)) == []
    assert len(list(_spelled_notes(listing, packs[:1], lives[:1]))) == 1, "nothing else may be hidden"


def test_whether_what_is_hidden_shows_is_no_verdict_without_an_oracle_that_could_tell():
    own = type(beside(Levers(), Players))

    def reference(self, reference, pack):
        if reference is not Reference.RANDOM:
            raise NotImplementedError
        return own.reference(self, reference, pack)

    found = {one.rule: one for one in verdicts(levers(type("Guessing", (own,), {"reference": reference})))}
    assert not any(one.broken for one in found.values())
    assert "random play is legal" in found
    assert "without a context an agent cannot know what is hidden" not in found


class Wordy(HintContext):
    def prepare(self, state, rules, observation):
        return super().prepare(state, f"{rules} please", observation)


def test_a_word_that_is_not_listed_is_named_once_with_who_showed_or_wrote_it():
    late = levers(step=stepped(Levers, lambda self, a, o, r, *m: (f"{o} hooray" if r else o, r, *m)))
    assert "the world shows 'hooray'" in str(broken(late))
    found = verdicts(levers(), mechanism=Wordy("compact"))
    assert "Wordy.prepare shows 'please'" in " ".join(one for verdict in found for one in verdict.broken)
    for word, said in (("miss", "the world shows 'miss'"), ("3=?", "random play notes '3=?'")):
        unlisted = machine(words(lambda own, word=word: tuple(one for one in own if one != word)))
        assert broken(unlisted) == {
            "words() lists every word that is shown, answered or noted": (f"{said}, which words() does not list",)
        }


class Unsplit(Machine):
    def sample_pack(self, *, split, index, num_tasks, seed=0):
        rng = random.Random(derive_seed(self.name, str(split), seed, index))
        gives = tuple(rng.sample(DRINKS, len(DRINKS)))
        orders = [Order(rng.choice(DRINKS), gives) for _ in range(num_tasks)]
        return self._pack(split, index, seed, derive_seed(self.name, *gives), orders)


class TwoRules(Machine):
    """As the loop of the guide, with rules of which none is of the test split."""

    def sample_pack(self, *, split, index, num_tasks, seed=0):
        rng = random.Random(derive_seed(self.name, str(split), seed, index))
        while split_of_text(drawn := rng.choice("ab")) is not split:
            pass
        tasks = super().sample_pack(split=split, index=index, num_tasks=num_tasks).tasks
        return Pack(id=f"{drawn}/{index}", split=split, world_seed=0, tasks=tasks)


def test_a_split_without_a_rule_is_named_and_not_waited_for(monkeypatch):
    monkeypatch.setattr(conformance_turns, "DRAW_S", 0.3)
    without = next(split for split in Split if split not in map(split_of_text, "ab"))
    ((sentence,),) = broken(TwoRules()).values()
    assert f"no pack of split {without} was found in 0.3 s" in sentence


def easier(self, action):
    """Takes any button for the right one in later tasks."""
    if self.position and "Button_" in action:
        self.task = replace(self.task, gives=(self.task.drink,) * len(self.task.gives))
    return Machine.step(self, action)


def placed(self, *, seed=None, options=None):
    self.position = int(options["task"].id)
    return Machine.reset(self, seed=seed, options=options)


PRICELESS = machine(step=stepped(Machine, lambda self, action, shown, _, *more: (shown, 0.0, *more)))
WINLESS = machine(
    step=stepped(Machine, lambda self, a, o, _, *m: (o, float(self._outcome == "win"), *m)), wins=("won",)
)


UNPLAYED = type("Unplayed", (example.MachinePlayers,), {"reference": raising(NotImplementedError())})


@pytest.mark.slow
@each(
    ("world", "num_packs", "remarks"),
    [
        (
            PRICELESS,
            30,
            {
                "an untrained policy earns different rewards": "tries pay 0: 8 siblings mostly earn alike",
                "who solves more earns more": "of the tasks and earn 0 each, who solve",
            },
        ),
        (
            machine(step=easier, reset=placed),
            30,
            {
                "without a context later tasks": "something other than the context",
                "later tasks profit": "in the last task than memoryless play",
            },
        ),
        (machine(UNPLAYED), 2, {"play by references": "the world has none"}),
    ],
)
def test_what_may_be_meant_so_is_shown_to_a_person(world, num_packs, remarks):
    found = looks(world, num_packs)
    for rule, remark in remarks.items():
        (said,) = [said for name, said in found.items() if name.startswith(rule)]
        assert remark in said


@pytest.mark.slow
def test_success_that_never_comes_is_named_as_that():
    ((sentence,),) = broken(WINLESS, 30).values()
    assert "no task of any player counts as a success, the oracle's included, though rewards reach 1.00" in sentence
    assert "`wins`" in sentence


class Fumbling(example.MachinePlayers):
    """Its random player presses a button that there is not."""

    def play(self, pack, *, teaches=False):
        play, gives = super().play(pack, teaches=teaches)
        object.__setattr__(play, "any_answer", lambda messages, rng: "<answer>Button_9</answer>")
        return play, gives


def test_a_malformed_answer_of_a_player_is_shown_with_what_it_answers():
    (found,) = broken(machine(Fumbling))["random play is legal"]
    assert re.fullmatch(
        r"12 answers were malformed, the first '<answer>Button_9</answer>' to '[^']*want=\w+[^']*'", found
    )


class Unseeded(Machine):
    """All that it draws is in the task."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None, options=options)


def test_a_world_that_seeds_no_generator_of_gymnasium_keeps_its_rules():
    assert not broken(Unseeded(), 4)


@pytest.mark.slow
def test_the_machine_itself_is_found_to_keep_every_rule():
    assert not [verdict for verdict in verdicts(Machine(), 30) if verdict.broken or verdict.look]


HIDING = sorted(set(own_worlds()) - {"terminal_reference"})
QUICK = {"levers", "doors"}


def _tier(name):
    """Harder packs of a world are for `make soak`."""
    return () if name in QUICK else pytest.mark.soak if name.endswith("_hard") else pytest.mark.slow


@pytest.mark.parametrize("name", [pytest.param(n, marks=_tier(n)) for n in HIDING])
def test_shipped_worlds_keep_the_rules(name):
    world = parse_world("check", "", ["--env", name]).env
    mechanism = default_mechanism(compact=bool(beside(world, Vocabulary).words()))
    found = list(check_world(world, mechanism, num_packs=3, pack_size=3))
    assert not [verdict for verdict in found if verdict.broken]
    assert any(verdict.remark.startswith("success by position") for verdict in found)
