"""Rollouts ahead that a checkpoint kept are those that were played: their packs, and what contexts their source is shown."""

import json

import pytest

from cod_lightning.contexts import HintContext, StackedContext
from cod_lightning.credit.baselines import GroupMean
from cod_lightning.credit.credited import Credit
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
from cod_lightning.rollout.group import run_group, run_groups
from cod_lightning.rollout.runner import RolloutRunner
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
    """Rollouts of a world's own player, two of them ahead."""

    def __init__(self, mechanism):
        self.env, self.mechanism = Levers(max_turns=2), mechanism
        self.runner = RolloutRunner(ScriptedEngine(lambda *_: "", lambda _: (), 0))

        class Rollouts(TrainingRollouts):
            def play(_, packs):
                return [run_groups([pack], 2, self.setting(pack))[0] for pack in packs]

            async def group(_, pack):
                return await run_group(pack, 2, self.setting(pack))

        self.rollouts = Rollouts(
            packs=TrainingPacks(Revisits(by="failure", back="continued"), self.env, SIZE, 7),
            setting=lambda: self.setting(self.rollouts.packs.pack(PackChoice(0))),
            group_size=2,
            runner=self.runner,
            max_staleness=2,
            packs_per_rollout=4,
            updates_per_rollout=1,
            seed=7,
        )

    def setting(self, pack):
        sampler = scripted_sampler(beside(self.env, Players).reference(Reference.SCRIPTED, pack), self.mechanism)
        return Setting(env=self.env, mechanism=self.mechanism, sampler=sampler)

    def score(self, batch, played, num_updates):
        """Asks for the prompts that a teacher with the oracle's context has."""
        begins = [
            ids[: mask.index(True)]
            for ids, mask in zip(batch.token_ids.tolist(), batch.action_mask.tolist(), strict=True)
        ]
        prompts = OraclePrompts(played)
        self.prompts = [prompts(*place, begin, 1) for place, begin in zip(batch.place.tolist(), begins, strict=True)]
        return batch

    def next(self, number):
        self.rollouts.next(number, 4 * number, Credit(EpisodeCredit(), GroupMean()), self.score)
        return self.prompts, self.rollouts.packs.state_dict()


@pytest.mark.parametrize(
    "name",
    [
        "stacked skills",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("compacting", "hint", "notebook", "stacked")),
    ],
)
def test_it_goes_on_as_if_it_had_not_been_kept(name):
    story, other, again = (Story(MECHANISMS[name]()) for _ in range(3))
    story.next(0)
    other.rollouts.load_state_dict(json.loads(json.dumps(story.rollouts.state_dict())))
    expected = story.next(1)
    assert any(prompt is not None for prompt in expected[0])
    assert any(choice["context"] for _, choice in expected[1]["state"]["kept"])
    assert other.next(1) == expected
    again.rollouts.load_state_dict(json.loads(json.dumps(other.rollouts.state_dict())))
    assert other.next(2) == again.next(2) == story.next(2)
    for one in (story, other, again):
        one.runner.ahead.drop()
