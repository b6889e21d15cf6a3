"""The bonus for an entry that was used: which tasks earn it."""

import asyncio

from cod_lightning.envs.levers import Levers
from cod_lightning.methods.entry_use import EntryUse
from cod_lightning.methods.episodes import EpisodesContext
from cod_lightning.methods.skills import SkillsContext
from cod_lightning.rewards.base import rewards_of
from cod_lightning.types import EntryEvent, EntryEventKind, Task
from tests.cases import each
from tests.records import episode
from tests.word_play import scripted

TASK = Task(id="0", seed=1, spec=None)
SHOWN, CAME, HELD = (
    EntryEvent(kind, "a", "b") for kind in (EntryEventKind.SHOWN, EntryEventKind.CAME, EntryEventKind.HELD)
)


def solve(success, entries):
    return episode(position=1, success=success, entries=entries)


@each(
    ("success", "entries", "earned"),
    [
        (True, (HELD, SHOWN), 0.5),
        (True, (SHOWN, SHOWN), 0.5),
        (False, (HELD, SHOWN), 0.0),
        (True, (HELD, CAME), 0.0),
        (True, (), 0.0),
        (True, None, 0.0),
    ],
)
def test_a_bonus_is_for_solved_tasks_that_were_shown_an_entry(success, entries, earned):
    other = solve(True, ())
    assert asyncio.run(EntryUse(0.5)([solve(success, entries), other], TASK)) == [earned, 0.0]


@each("mechanism", [SkillsContext("compact"), EpisodesContext("compact")])
def test_played_packs_are_paid_for_use_from_the_second_task_on(mechanism):
    world = Levers(protocol="compact")
    rewards = rewards_of({"use": EntryUse(0.5)})
    groups = scripted(world, mechanism, num_packs=8, num_siblings=2, num_tasks=4, rewards=rewards)
    lives = [life.solves for group in groups for life in group.lifecycles]
    assert {one.parts["use"] for solves in lives for one in solves[1:]} == {0.0, 0.5}
    assert {solves[0].parts["use"] for solves in lives} == {0.0}
    assert all(one.parts["use"] <= 0.5 * one.success for solves in lives for one in solves)
