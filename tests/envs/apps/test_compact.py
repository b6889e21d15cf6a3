"""The apps in fused words."""

import itertools
from collections import Counter

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.compact import GOALS, VALUES, KnownHabits, split_of
from cod_lightning.envs.apps.facts import HABITS, HiddenFacts
from cod_lightning.types import Split
from tests.cases import each
from tests.envs.apps.played import specs


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


def test_a_task_is_done_when_each_of_its_habits_was_met_and_a_word_that_it_is_not_about_shows_nothing():
    env, facts = begun("buy_goods")
    assert say(env, facts.address) == (f"{facts.address}=ok", 0.0, False, False)
    assert say(env, facts.card) == (f"win {facts.address}=ok {facts.card}=ok", 1.0, True, False)
    assert env.success
    env, facts = begun("share_with_boss")
    assert say(env, facts.card)[0] == "void"
    env, facts = begun("buy_goods")
    say(env, facts.card)
    assert say(env, facts.card)[0] == "void", "it was met already"


def test_as_many_wrong_words_are_forgiven_as_is_said():
    env, facts = begun("share_with_boss", misses=1)
    wrong = [value for value in VALUES["boss"] if value != facts.boss]
    assert say(env, wrong[0]) == (f"{wrong[0]}=no", 0.0, False, False)
    assert say(env, wrong[1]) == (f"lost {wrong[0]}=no {wrong[1]}=no", 0.0, True, False)
    env, facts = begun("share_with_boss", misses=1)
    say(env, wrong[0])
    assert say(env, facts.boss)[1] == 1.0


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


@each("slots", [HABITS, ("card", "boss", "sign")])
def test_every_split_has_all_values_and_combinations_of_all_habits_but_one_equally_often(slots):
    found = Counter()
    for values in itertools.product(*(VALUES[slot] for slot in slots)):
        split = split_of(HiddenFacts(**dict(zip(slots, values, strict=True))), slots)
        for left_out in range(len(slots)):
            found[split, left_out, values[:left_out] + values[left_out + 1 :]] += 1
    for split, number in ((Split.TEST, 1), (Split.VALIDATION, 1), (Split.TRAIN, 2)):
        of_split = [count for (own, _, _), count in found.items() if own is split]
        assert of_split == [number] * (len(slots) * 4 ** (len(slots) - 1))


def test_notes_are_as_short_as_possible():
    known = KnownHabits.read(["gold=no blue=no travel=no", "home=ok", "home=no studio=ok", "director=no"])
    assert known.write() == "joint=ok studio=ok director=no"
    assert KnownHabits.read([known.write()]).write() == known.write()
