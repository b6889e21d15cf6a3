"""Worlds of ways: what a word does, what the split decides, and what is noted."""

import itertools
import random
from collections import Counter

import pytest

from cod_lightning.envs.apps.facts import CHOICES, HABITS, HiddenFacts
from cod_lightning.envs.base import split_of_text
from cod_lightning.envs.terminal.quirks import draw_site
from cod_lightning.envs.ways import AppsWays, TerminalWays
from cod_lightning.envs.ways.apps import KnownHabits, split_of
from cod_lightning.envs.ways.terminal import WAYS, Known, canonical, site_with, ways_of
from cod_lightning.types import Split
from tests.cases import each


def begun(goal):
    """A world at a task with this goal, and the ways that work in it."""
    env = AppsWays()
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=60)
    task = next(task for task in pack.tasks if task.spec.template == goal)
    assert env.reset(options={"task": task})[0] == f"goal={goal}"
    return env, env.truth(task.spec)


def say(env, word):
    return env.step(f"card <answer>{word}</answer>")[:4]


def test_a_task_is_done_when_each_of_its_slots_was_met_and_a_word_that_it_is_not_about_shows_nothing():
    env, ways = begun("buy_goods")
    card, address = ways["card"], ways["address"]
    assert say(env, address) == (f"{address}=ok", 0.0, False, False)
    assert say(env, card) == (f"win {address}=ok {card}=ok", 1.0, True, False)
    assert env.success
    env, _ = begun("share_with_boss")
    assert say(env, card)[0] == "void"
    env, _ = begun("buy_goods")
    say(env, card)
    assert say(env, card)[0] == "void", "it was met already"


def test_as_many_wrong_words_are_forgiven_as_is_said():
    env, ways = begun("share_with_boss")
    wrong = [value for value in CHOICES["boss"] if value != ways["boss"]]
    assert say(env, wrong[0]) == (f"{wrong[0]}=no", 0.0, False, False)
    assert say(env, wrong[1]) == (f"lost {wrong[0]}=no {wrong[1]}=no", 0.0, True, False)
    env, ways = begun("share_with_boss")
    say(env, wrong[0])
    assert say(env, ways["boss"])[1] == 1.0


def test_every_split_has_all_values_and_combinations_of_all_habits_but_one_equally_often():
    found = Counter()
    for values in itertools.product(*(CHOICES[slot] for slot in HABITS)):
        split = split_of(HiddenFacts(**dict(zip(HABITS, values, strict=True))))
        for left_out in range(len(HABITS)):
            found[split, left_out, values[:left_out] + values[left_out + 1 :]] += 1
    for split, number in ((Split.TEST, 1), (Split.VALIDATION, 1), (Split.TRAIN, 2)):
        of_split = [count for (own, _, _), count in found.items() if own is split]
        assert of_split == [number] * (len(HABITS) * 4 ** (len(HABITS) - 1))


def test_the_ways_of_a_site_read_back():
    for ways in itertools.product(*WAYS.values()):
        assert (
            tuple(ways_of(site_with(draw_site(random.Random(0), 0), dict(zip(WAYS, ways, strict=True)))).values())
            == ways
        )


@pytest.mark.slow
def test_no_task_at_a_site_is_in_two_splits_and_all_ways_are_in_each():
    env, found = TerminalWays(), {}
    for split in Split:
        packs = [env.sample_pack(split=split, index=i, num_tasks=2) for i in range(600)]
        found[split] = {canonical(task.spec) for pack in packs for task in pack.tasks}
        assert {split_of_text(text) for text in found[split]} == {split}
        assert len({tuple(ways_of(pack.tasks[0].spec.site).values()) for pack in packs}) == 64
    assert sum(map(len, found.values())) == len(set.union(*found.values()))


@each(
    ("known", "observation", "noted"),
    [
        (Known, "", ""),
        (Known, "late scp=no rsync=no", "scp=no rsync=no"),
        (Known, "scp=no rsync=no late scp-O=no", "drop=ok"),
        (Known, "scp=no win scp=no rsync=ok", "rsync=ok"),
        (Known, "scp=ok late scp=no", "scp=no"),
        (Known, "jump=ok scp=no win plain=ok", "scp=no jump=ok plain=ok"),
        (Known, "scp=no rsync=no scp-O=no late drop=no", "drop=no"),
        (KnownHabits, "gold=no blue=no travel=no home=ok home=no studio=ok director=no", "joint=ok studio=ok director=no"),
    ],
)  # fmt: skip
def test_notes_are_as_short_as_possible_and_the_later_statement_wins(known, observation, noted):
    assert known.read([observation]).write() == noted
    assert known.read([noted]).write() == noted
