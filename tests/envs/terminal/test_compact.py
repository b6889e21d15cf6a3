"""The terminal in fused words."""

import itertools
import random
from dataclasses import replace

import pytest

from cod_lightning.envs.base import split_of_text
from cod_lightning.envs.terminal import Terminal
from cod_lightning.envs.terminal.compact import SLOT_OF, WAYS, Known, attempt, canonical, site_with, ways_of
from cod_lightning.envs.terminal.quirks import draw_site
from cod_lightning.envs.terminal.tasks import draw_task
from cod_lightning.types import Split
from tests.cases import each


def _site(ways: tuple[str, ...], seed: int = 0):
    plain = replace(draw_site(random.Random(seed), 0), system="linux")
    return site_with(plain, dict(zip(WAYS, ways, strict=True)))


def _task(kind: str, ways: tuple[str, ...], seed: int = 0):
    side = "remote" if SLOT_OF[kind] == "enter" else "local"
    return replace(draw_task(random.Random(seed), _site(ways, seed), kind), side=side)


@pytest.mark.parametrize(
    "kind", [k if n % 4 == 0 else pytest.param(k, marks=pytest.mark.slow) for n, k in enumerate(SLOT_OF)]
)
def test_exactly_the_sites_own_way_works_on_the_simulated_machines(kind):
    for n, ways in enumerate(itertools.product(*WAYS.values())):
        task = _task(kind, ways, n % 5)
        worked = [way for way in WAYS[SLOT_OF[kind]] if attempt(task, way, 8)[0]]
        assert worked == [ways_of(task.site)[SLOT_OF[kind]]], ways


def test_the_ways_of_a_site_read_back():
    for ways in itertools.product(*WAYS.values()):
        assert tuple(ways_of(_site(ways)).values()) == ways


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quirks", "number"), [(1, 10), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((2, 37), (3, 64)))]
)
def test_no_task_is_in_two_splits_and_all_ways_are_in_each(quirks, number):
    env = Terminal(protocol="compact", quirks=quirks)
    found = {}
    for split in Split:
        packs = [env.sample_pack(split=split, index=i, num_tasks=2) for i in range(600 if quirks > 1 else 200)]
        found[split] = {canonical(task.spec) for pack in packs for task in pack.tasks}
        assert {split_of_text(text) for text in found[split]} == {split}
        assert len({tuple(ways_of(pack.tasks[0].spec.site).values()) for pack in packs}) == number
    assert sum(map(len, found.values())) == len(set.union(*found.values()))


@each(
    ("observation", "noted"),
    [
        ("", ""),
        ("late scp=no rsync=no", "scp=no rsync=no"),
        ("scp=no rsync=no late scp-O=no", "drop=ok"),
        ("scp=no win scp=no rsync=ok", "rsync=ok"),
        ("scp=ok late scp=no", "scp=no"),
        ("jump=ok scp=no win plain=ok", "scp=no jump=ok plain=ok"),
        ("scp=no rsync=no scp-O=no late drop=no", "drop=no"),
    ],
)
def test_notes_are_as_short_as_possible_and_the_later_statement_wins(observation, noted):
    assert Known.read([observation]).write() == noted
