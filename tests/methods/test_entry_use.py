"""The bonus for an entry that was used: which tasks earn it."""

from cod_lightning.envs.levers import Levers
from cod_lightning.methods.entry_use import EntryUse
from cod_lightning.methods.episodes import EpisodesContext
from cod_lightning.methods.skills import SkillsContext
from cod_lightning.rewards.base import rewards_of
from tests.cases import each
from tests.word_play import scripted


@each("mechanism", [SkillsContext("compact"), EpisodesContext("compact")])
def test_played_packs_are_paid_for_use_from_the_second_task_on(mechanism):
    world = Levers(protocol="compact")
    rewards = rewards_of({"use": EntryUse(0.5)})
    groups = scripted(world, mechanism, num_packs=8, num_siblings=2, num_tasks=4, rewards=rewards)
    lives = [life.solves for group in groups for life in group.lifecycles]
    assert {one.parts["use"] for solves in lives for one in solves[1:]} == {0.0, 0.5}
    assert {solves[0].parts["use"] for solves in lives} == {0.0}
    assert all(one.parts["use"] <= 0.5 * one.success for solves in lives for one in solves)
