"""The reward of a PDE task stays hidden from the policy, whatever carries its context."""

import re

import pytest
from msgspec import structs

from cod_lightning.contexts import HintContext, StackedContext
from cod_lightning.contexts.base import Scripted
from cod_lightning.envs.base import Players, Reference, TextPolicy, beside
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.pde import PDEDiscovery
from cod_lightning.envs.ralph_loop import RalphLoop
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.methods.episodes import EpisodesContext
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.methods.skills import SkillsContext
from cod_lightning.methods.transcript import TranscriptContext
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.rollout.transcript import episode_record, read_episode
from cod_lightning.types import EpisodeKind, Split
from tests.cases import each
from tests.methods.test_episodes import solved

SHOWN = re.compile(r"reward\W+\d|which was (not )?solved", re.IGNORECASE)
"""A reward in figures, or an outcome."""
MECHANISMS = {
    "hint": HintContext,
    "notebook": lambda: NotebookContext(provenance=True),
    "episodes": lambda: EpisodesContext(provenance=True),
    "transcript": TranscriptContext,
    "skills and hint": lambda: StackedContext([SkillsContext(), HintContext()]),
}


class Witness(TextPolicy):
    """Plays like another policy and keeps every message that it was put."""

    def __init__(self, inside):
        self.inside, self.texts = inside, set()

    def act(self, messages, rng):
        self.texts |= {message.content for message in messages}
        return self.inside.act(messages, rng)

    def note(self, messages, rng):
        self.texts |= {message.content for message in messages}
        return self.inside.note(messages, rng)


def outcomes_shown(world, mechanism):
    """Sentences in the prompts of three tasks that state a reward or an outcome, and the episodes."""
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=3)
    witness = Witness(beside(world, Players).reference(Reference.ORACLE, pack))
    setting = Setting(env=world, mechanism=mechanism, sampler=scripted_sampler(witness, mechanism))
    ((life,),) = (group.lifecycles for group in run_groups([pack], 1, setting))
    assert not life.failed
    assert all(episode.reward is not None and episode.reward > 0.5 for episode in life.solves)
    return [found[0] for text in witness.texts for found in SHOWN.finditer(text)], life.episodes


def small(**parameters):
    return PDEDiscovery(grid_points=65, time_levels=401, **parameters)


@each("name", ["notebook", "skills and hint"], slow=MECHANISMS)
def test_no_prompt_states_the_reward_of_a_task(name):
    shown, episodes = outcomes_shown(small(), MECHANISMS[name]())
    assert shown == []
    assert {e.reward_hidden for e in episodes if e.kind is EpisodeKind.SOLVE} == {True}


def test_a_world_around_it_hides_the_reward_as_well():
    for world in (RalphLoop(small()), Mixture({"pde": small()})):
        shown, _ = outcomes_shown(world, HintContext())
        assert shown == []


def test_a_hidden_reward_credits_no_record_and_no_skill():
    hidden = structs.replace(solved("task", reward=1.0), reward_hidden=True)
    records = EpisodesContext()
    for episode, worth in ((hidden, 0.5), (structs.replace(hidden, reward_hidden=False), 0.65)):
        before = records.prepare(beside(records, Scripted).adopt("a note"), "rules", "task").state
        assert records.feedback(before, episode).worth[0] == pytest.approx(worth)
    skills = SkillsContext()
    state = structs.replace(beside(skills, Scripted).adopt("pull when red do pull it"), chosen="pull")
    assert skills.feedback(state, hidden).skills == state.skills


def test_a_transcript_keeps_that_the_reward_was_hidden():
    hidden = structs.replace(solved("task"), reward_hidden=True)
    assert read_episode(episode_record(hidden)).reward_hidden
    older = {name: value for name, value in episode_record(solved("task")).items() if name != "reward_hidden"}
    assert not read_episode(older).reward_hidden
