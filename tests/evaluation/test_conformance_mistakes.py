"""Mistakes of those who write their first world: each is found, and named in one sentence that says what to do."""

import importlib.util
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.splits import split_of_text
from cod_lightning.envs.task_world import TaskVocabulary
from cod_lightning.evaluation import conformance_form
from cod_lightning.evaluation.conformance import check_world
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split

_FILE = Path(__file__).parents[2] / "examples" / "vending_machine" / "vending_machine.py"
_SPEC = importlib.util.spec_from_file_location("vending_machine_of_mistakes", _FILE)
example = sys.modules[_SPEC.name] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(example)
DRINKS, Order, Machine = example.DRINKS, example.Order, example.VendingMachine


def verdicts(world, num_packs=6):
    return list(check_world(world, HintContext("compact"), num_packs=num_packs, pack_size=3))


def broken(world, num_packs=6):
    return {verdict.rule: verdict.broken for verdict in verdicts(world, num_packs) if verdict.broken}


def looks(world, num_packs=6):
    return {verdict.rule: verdict.remark for verdict in verdicts(world, num_packs) if verdict.look}


@pytest.mark.slow
def test_the_machine_itself_is_found_to_keep_every_rule():
    assert not broken(Machine(), 30)
    assert not looks(Machine(), 30)


class Priceless(Machine):
    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 0.0, terminated, truncated, info


def test_a_world_in_which_chance_earns_nothing_is_found_to_teach_nothing_at_first():
    rule = "an untrained policy earns different rewards"
    assert (
        "100% of the tasks that random play tries pay 0: 8 siblings mostly earn alike" in looks(Priceless(), 30)[rule]
    )
    assert rule not in looks(Machine(), 30)


class Unsplit(Machine):
    def sample_pack(self, *, split, index, num_tasks, seed=0):
        rng = random.Random(derive_seed(self.name, str(split), seed, index))
        gives = tuple(rng.sample(DRINKS, len(DRINKS)))
        orders = [Order(rng.choice(DRINKS), gives) for _ in range(num_tasks)]
        return self._pack(split, index, seed, self.seed_of(gives, index), orders)

    def seed_of(self, gives, index):
        return derive_seed(self.name, *gives)


class UnsplitByIndex(Unsplit):
    def seed_of(self, gives, index):
        return derive_seed(self.name, index, *gives)


def test_splits_that_share_what_is_hidden_are_found_in_few_packs():
    rule = "packs of different splits share no world"
    assert "have the world_seed of a training pack" in str(broken(Unsplit())[rule])
    assert "have the gives of a training pack; a mistake, if that is what is hidden" in looks(UnsplitByIndex())[rule]


class LateReset(Machine):
    def _start(self, task):
        turns = getattr(self, "turns", 0)
        super()._start(task)
        self.turns = turns


class Noting(Machine):
    """Keeps what was pressed in earlier tasks, and says nothing of it."""

    pressed = None

    def _start(self, task):
        pressed = self.pressed or {}
        super()._start(task)
        self.pressed = pressed


class OfTheClass(Machine):
    pressed: dict = {}  # noqa: RUF012  (the mistake)

    def _start(self, task):
        self.task, self.turns, self._outcome = task, 0, ""


@pytest.mark.parametrize(
    ("world", "evidence"),
    [(LateReset, "what does reset not set back?"), (Noting, "without_world_memory()"), (OfTheClass, "does the class")],
)
def test_what_is_kept_from_task_to_task_unsaid_is_found(world, evidence):
    assert evidence in str(broken(world())["a task is the same whatever was played before it"])


def test_a_task_that_goes_on_in_an_object_that_played_before_is_found():
    found = broken(LateReset())["any text is a legal action, and a task ends within max_turns"]
    assert "goes on after max_turns=2; does reset set back what counts turns?" in str(found)


class Easier(Machine):
    """Takes any button for the right one in later tasks."""

    def reset(self, *, seed=None, options=None):
        self.position = int(options["task"].id)
        return super().reset(seed=seed, options=options)

    def step(self, action):
        if self.position and "Button_" in action:
            self.task = replace(self.task, gives=(self.task.drink,) * len(self.task.gives))
        return super().step(action)


def test_memoryless_play_that_gets_better_is_shown_to_a_person():
    assert "something other than the context" in looks(Easier(), 30)["without a context later tasks are no easier"]


class PaidEarly(Machine):
    def step(self, action):
        shown, reward, terminated, truncated, info = super().step(action)
        return shown, reward if terminated or truncated else 0.1, terminated, truncated, info


def test_pay_before_the_end_of_a_task_is_found_once():
    (found,) = broken(PaidEarly())["any text is a legal action, and a task ends within max_turns"]
    assert "gave reward 0.1; only the last one's counts" in found


class Lost(Machine):
    late = "late"


def test_a_task_out_of_turns_that_counts_as_completed_is_shown_to_a_person():
    assert "goes on with max_turns=3" in looks(Lost())["a task that runs out of turns is TRUNCATED"]


class Nameless(Machine):
    def __init__(self):
        super().__init__()
        del self.name


class Turnless(Machine):
    def __init__(self):
        super().__init__()
        del self.max_turns


class WordlessVocabulary(TaskVocabulary):
    def words(self):
        pass


class Wordless(Machine):
    companions = (WordlessVocabulary, *Machine.companions)


class RulesMethod(Machine):
    def rules(self):
        return "machine"


class SuccessMethod(Machine):
    def success(self):
        return True


class Untyped(example.TaskWorld):
    name, max_turns, wording = "untyped", 2, example.Wording()
    rules = _start = _drawn = _observed = sample_pack = step = None


class Listing(Machine):
    def sample_pack(self, **asked):
        return list(super().sample_pack(**asked).tasks)


class Silent(Machine):
    def step(self, action):
        super().step(action)


class FourValues(Machine):
    def step(self, action):
        shown, reward, terminated, truncated, info = super().step(action)
        return shown, reward, terminated or truncated, info


class Written(Machine):
    def step(self, action):
        shown, reward, *rest = super().step(action)
        return shown, str(reward), *rest


class TextOnly(Machine):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=options)[0]


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (Nameless, "name is missing; set it in __init__"),
        (Turnless, "max_turns is missing"),
        (Wordless, "words() returned None; return a tuple"),
        (RulesMethod, "rules is a method; put @property before it"),
        (SuccessMethod, "success is a method; put @property before it"),
        (Untyped, "task_type is missing"),
        (Listing, "sample_pack returned a list; return a Pack"),
        (Silent, "step returned None; return five values"),
        (FourValues, "step returned 4 values; return five values"),
        (Written, "the reward is a str; expected a number"),
        (TextOnly, "reset returned a str; return two values"),
    ],
)
def test_a_member_of_another_form_is_one_broken_rule_and_one_sentence(world, said):
    ((sentence,),) = broken(world()).values()
    assert said in sentence
    assert "conformance" not in sentence


class NanReward(Machine):
    def step(self, action):
        shown, _, *rest = super().step(action)
        return shown, float("nan"), *rest


def test_a_reward_that_is_no_number_is_not_taken_for_a_copy_that_differs():
    (rule,) = broken(NanReward())
    assert rule.startswith("any text is a legal action")


class TwoRules(Machine):
    """As the loop of the guide, with rules of which none is of the test split."""

    def sample_pack(self, *, split, index, num_tasks, seed=0):
        rng = random.Random(derive_seed(self.name, str(split), seed, index))
        while split_of_text(drawn := rng.choice("ab")) is not split:
            pass
        tasks = super().sample_pack(split=split, index=index, num_tasks=num_tasks).tasks
        return Pack(id=f"{drawn}/{index}", split=split, world_seed=0, tasks=tasks)


def test_a_split_without_a_rule_is_named_and_not_waited_for(monkeypatch):
    monkeypatch.setattr(conformance_form, "DRAW_S", 0.3)
    without = next(split for split in Split if split not in map(split_of_text, "ab"))
    ((sentence,),) = broken(TwoRules()).values()
    assert f"no pack of split {without} was found in 0.3 s" in sentence


class Unshared(Machine):
    def sample_pack(self, *, split, index, num_tasks, seed=0):
        pack = super().sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed)
        orders = [rng.sample(DRINKS, len(DRINKS)) for rng in map(random.Random, range(index, index + num_tasks))]
        tasks = [replace(t, spec=replace(t.spec, gives=tuple(o))) for t, o in zip(pack.tasks, orders, strict=True)]
        return replace(pack, tasks=tuple(tasks))


def test_tasks_that_share_nothing_are_shown_to_a_person():
    assert "what could a context carry?" in looks(Unshared())["tasks of a pack share what is hidden"]


class UnplayedPlayers(example.MachinePlayers):
    def reference(self, kind, pack):
        raise NotImplementedError


class Unplayed(Machine):
    companions = (UnplayedPlayers, *Machine.companions)


def test_a_world_that_nobody_has_solved_is_not_said_to_be_in_order():
    assert [*looks(Unplayed())] == ["play by references"]


class Winless(Machine):
    wins = ("won",)

    def step(self, action):
        shown, _, *rest = super().step(action)
        return shown, float(self._outcome == "win"), *rest


def test_success_that_never_comes_is_named_as_that():
    ((sentence,),) = broken(Winless(), 30).values()
    assert "no task of any player counts as a success, the oracle's included, though rewards reach 1.00" in sentence
    assert "`wins`" in sentence


class UnlistedVocabulary(TaskVocabulary):
    def words(self):
        return tuple(word for word in super().words() if word != self.env.missing)


class Unlisted(Machine):
    companions = (UnlistedVocabulary, *Machine.companions)
    missing = "miss"


class UnlistedNote(Unlisted):
    missing = "3=?"


def test_a_word_that_is_not_listed_is_named_once_and_with_who_wrote_it():
    assert broken(Unlisted()) == {
        "words() lists every word that is shown, answered or noted": (
            "the world shows 'miss', which words() does not list",
        )
    }
    ((sentence,),) = broken(UnlistedNote()).values()
    assert sentence == "random play notes '3=?', which words() does not list"
