"""The apps in fused words."""

import itertools
from collections import Counter

import pytest

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.compact import GOALS, SLOT_OF, VALUES, KnownHabits, split_of
from cod_lightning.envs.apps.facts import HABITS, HiddenFacts
from cod_lightning.envs.base import Reference
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split
from tests.envs.apps.played import specs, successes


def make(**options) -> Apps:
    return Apps(protocol="compact", max_turns=3, **options)


def begun(goal, **options):
    env = make(templates=[goal], **options)
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    assert env.reset(options={"task": pack.tasks[0]})[0] == f"goal={goal}"
    return env, pack.tasks[0].spec.facts


def other(slot, value):
    return next(one for one in VALUES[slot] if one != value)


def say(env, word):
    return env.step(f"card <answer>{word}</answer>")[:4]


def test_a_task_is_done_when_each_of_its_habits_was_met():
    env, facts = begun("buy_goods")
    assert say(env, facts.address) == (f"{facts.address}=ok", 0.0, False, False)
    assert say(env, facts.card) == (f"win {facts.address}=ok {facts.card}=ok", 1.0, True, False)
    assert env.success


def test_as_many_wrong_words_are_forgiven_as_is_said():
    env, facts = begun("share_with_boss", misses=1)
    wrong = [value for value in VALUES["boss"] if value != facts.boss]
    assert say(env, wrong[0]) == (f"{wrong[0]}=no", 0.0, False, False)
    assert say(env, wrong[1]) == (f"lost {wrong[0]}=no {wrong[1]}=no", 0.0, True, False)
    env, facts = begun("share_with_boss", misses=1)
    say(env, wrong[0])
    assert say(env, facts.boss)[1] == 1.0


def test_a_word_that_the_task_is_not_about_shows_nothing():
    env, facts = begun("share_with_boss")
    assert say(env, facts.card)[0] == "void"
    env, facts = begun("buy_goods")
    say(env, facts.card)
    assert say(env, facts.card)[0] == "void", "it was met already"


def test_a_task_ends_with_its_turns():
    env, facts = begun("share_with_boss", misses=9)
    wrong = other("boss", facts.boss)
    say(env, wrong)
    say(env, wrong)
    assert say(env, wrong) == (f"late {wrong}=no", 0.0, False, True)


def test_an_unknown_word_is_malformed():
    env, _ = begun("share_with_boss")
    assert say(env, "please") == ("malformed", 0.0, True, False)


def test_every_word_does_what_the_apps_make_of_it():
    """Of each slot just the person's own value leads to the right final state."""
    for task in specs(make(slots=("card", "address", "boss", "sign", "minutes")), 40):
        for slot in GOALS[task.template]:
            right = []
            for value in VALUES[slot]:
                env = make(slots=("card", "address", "boss", "sign", "minutes"), misses=9)
                env._start(task)
                if env.step(f"<answer>{value}</answer>")[0].split()[-1] == f"{value}=ok":
                    right.append(value)
            assert right == [getattr(task.facts, slot)], (task.text, slot)


def test_knowing_helps_and_guessing_does_not_win_for_ever():
    assert all(successes(make(), Reference.ORACLE, 100))
    random_wins = successes(make(), Reference.RANDOM, 200)
    scripted = successes(make(), Reference.SCRIPTED, 200)
    assert sum(random_wins) < 0.5 * len(random_wins)
    first, last = scripted[0::4], scripted[3::4]
    assert sum(last) > sum(first) + 10


@pytest.mark.slow
def test_splits_share_no_hidden_facts():
    drawn = {
        split: {spec.facts for spec in specs(make(), 200, split)}
        for split in (Split.TRAIN, Split.VALIDATION, Split.TEST)
    }
    assert not drawn[Split.TRAIN] & (drawn[Split.TEST] | drawn[Split.VALIDATION])
    assert not drawn[Split.TEST] & drawn[Split.VALIDATION]


@pytest.mark.parametrize("slots", [HABITS, ("card", "boss", "sign")])
def test_every_split_has_all_values_and_combinations_of_all_habits_but_one_equally_often(slots):
    found = Counter()
    for values in itertools.product(*(VALUES[slot] for slot in slots)):
        split = split_of(HiddenFacts(**dict(zip(slots, values, strict=True))), slots)
        for left_out in range(len(slots)):
            found[split, left_out, values[:left_out] + values[left_out + 1 :]] += 1
    for split, number in ((Split.TEST, 1), (Split.VALIDATION, 1), (Split.TRAIN, 2)):
        of_split = [count for (own, _, _), count in found.items() if own is split]
        assert of_split == [number] * (len(slots) * 4 ** (len(slots) - 1))


def test_two_habits_alone_are_refused_unless_people_are_held_out():
    with pytest.raises(ConfigError, match=r"data\.env\.slots"):
        make(slots=("card", "boss"))
    assert make(slots=("card", "boss"), split_by=("person",)).slots == ("card", "boss")


def test_notes_are_as_short_as_possible():
    known = KnownHabits.read(["gold=no blue=no travel=no", "home=ok", "home=no studio=ok", "director=no"])
    assert known.write() == "joint=ok studio=ok director=no"
    assert KnownHabits.read([known.write()]).write() == known.write()


def test_slots_without_a_kind_of_task_are_refused():
    with pytest.raises(ConfigError, match=r"data\.env\.templates"):
        make(slots=("address",), split_by=("person",))


def test_every_word_belongs_to_one_habit():
    assert len(SLOT_OF) == sum(map(len, VALUES.values()))
