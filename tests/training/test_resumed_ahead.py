"""A rollout ahead that a checkpoint kept is the one that was played: its packs, and what contexts its source is shown."""

import json
from dataclasses import asdict

import pytest

from cod_lightning.contexts import HintContext, StackedContext
from cod_lightning.credit.baselines import GroupMean
from cod_lightning.credit.credited import credited
from cod_lightning.credit.returns import EpisodeCredit
from cod_lightning.engines.scripted import ScriptedEngine
from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.methods import revisits
from cod_lightning.methods.compacting import CompactingContext
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.methods.privileged import OraclePrompts
from cod_lightning.methods.revisits import Revisits
from cod_lightning.methods.skills import SkillsContext
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.runner import Owed, RolloutRunner
from cod_lightning.rollout.setting import Setting
from cod_lightning.training.packs import PackChoice, TrainingPacks
from cod_lightning.training.rollouts import TrainingRollouts

SIZE = 3
MECHANISMS = {
    "hint": HintContext,
    "notebook": NotebookContext,
    "stacked": lambda: StackedContext([HintContext(), NotebookContext()]),
    "stacked skills": lambda: StackedContext([HintContext(), SkillsContext()]),
    "compacting": lambda: CompactingContext(NotebookContext()),
}


@pytest.fixture(autouse=True)
def failures_come_back(monkeypatch):
    monkeypatch.setattr(revisits, "SOLVED", (0.0, 0.75))


class Story:
    """Rollouts of a world's own player, one of them ahead."""

    def __init__(self, mechanism, resample=0):
        self.env, self.mechanism, self.begun = Levers(max_turns=2), mechanism, 0
        self.runner = RolloutRunner(ScriptedEngine(lambda *_: "", lambda _: (), 0))

        class Rollouts(TrainingRollouts):
            def play(_, packs):
                return [self.played(pack) for pack in packs]

        self.rollouts = Rollouts(
            packs=TrainingPacks(Revisits(by="failure", back="continued"), self.env, SIZE, 7),
            setting=lambda: self.setting(self.rollouts.packs.pack(PackChoice(0))),
            group_size=2,
            runner=self.runner,
            learner=lambda: self,
            max_staleness=1,
            packs_per_rollout=4,
            updates_per_rollout=1,
            resample_packs=resample,
            seed=7,
        )

    def setting(self, pack):
        sampler = scripted_sampler(beside(self.env, Players).reference(Reference.SCRIPTED, pack), self.mechanism)
        return Setting(env=self.env, mechanism=self.mechanism, sampler=sampler)

    def played(self, pack):
        return run_groups([pack], 2, self.setting(pack))[0]

    def credited(self, table):
        return credited(table, EpisodeCredit(), GroupMean())

    def score(self, batch, played, *, several_updates):
        """Asks for the prompts that a teacher with the oracle's context has."""
        ids = [row[:length] for row, length in zip(batch.token_ids.tolist(), batch.lengths.tolist(), strict=True)]
        prompts = OraclePrompts(played)
        self.prompts = [prompts(*place, row) for place, row in zip(batch.place.tolist(), ids, strict=True)]
        return batch

    def next(self, number):
        self.rollouts.next(number, 4 * number)
        return self.prompts, self.rollouts.packs.state_dict()


@pytest.mark.parametrize(
    "name",
    [
        "stacked skills",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("compacting", "hint", "notebook", "stacked")),
    ],
)
def test_it_goes_on_as_if_it_had_not_been_kept(name):
    story, other = Story(MECHANISMS[name]()), Story(MECHANISMS[name]())
    story.next(0)
    other.rollouts.load_state_dict(json.loads(json.dumps(story.rollouts.state_dict())))
    again = Story(MECHANISMS[name]())
    again.rollouts.load_state_dict(json.loads(json.dumps(other.rollouts.state_dict())))
    expected = story.next(1)
    assert any(prompt is not None for prompt in expected[0])
    assert any(choice["context"] for _, choice in expected[1]["state"]["kept"])
    assert other.next(1) == again.next(1) == expected
    assert other.next(2) == story.next(2)
    for one in (story, other, again):
        one.runner.ahead.drop()


def test_what_a_signal_had_given_up_is_played_from_the_packs_that_were_chosen_then():
    story, choices = Story(HintContext()), [PackChoice(index) for index in (9, 3, 5, 7)]
    key = {"first": 4, "choices": [asdict(one) for one in choices]}
    story.runner.restore([], Owed(rollouts=[key], weights={}, version=-1))
    played = story.rollouts.ahead.take(1, 4).rollout
    assert [one.choice for one in played.packs] == choices
    assert story.runner.owed is None


class InFlight(ScriptedEngine):
    """Its weights change while turns are under way."""

    in_flight = True


def test_what_a_checkpoint_keeps_ahead_in_another_form_is_played_again():
    whole, flying = Story(HintContext()), Story(HintContext())
    whole.next(0)
    flying.runner.engine = InFlight(lambda *_: "", lambda _: (), 0)
    kept = whole.rollouts.state_dict()
    flying.rollouts.load_state_dict(kept)
    assert flying.rollouts.in_flight.groups.begun == []
    assert flying.runner.ahead.begun == []
    other = kept | {"ahead": [], "in_flight": [{"choice": {"index": 4}, "rollout": 0, "lines": None, "seconds": 0.0}]}
    flying.rollouts.load_state_dict(other)
    assert flying.rollouts.state_dict()["in_flight"] == other["in_flight"], "kept until the engine serves"
    whole.rollouts.load_state_dict(other)
    whole.next(1)
    for one in (whole, flying):
        one.runner.ahead.drop()
