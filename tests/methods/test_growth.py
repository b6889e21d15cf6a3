"""A curriculum whose packs and tasks grow stage by stage."""

import pytest
import torch

from cod_lightning.contexts import HintContext
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ConfigError
from cod_lightning.methods.growth import Growth
from cod_lightning.methods.propose import ProposeAndSolve
from cod_lightning.training.packs import PackOutcomes, TrainingPacks
from tests.cases import each
from tests.credit_tables import plain_credit

NOTHING = PackOutcomes(choices=[], credit=plain_credit(torch.zeros(0, 1, 1)))


def grown(num_rollouts, **options):
    packs = TrainingPacks(Growth(**options), Levers(max_turns=4), 4, 1)
    for _ in range(num_rollouts):
        packs.observe(NOTHING)
    return packs


@each(("rollouts", "size", "turns"), [(0, 2, 1), (1, 2, 1), (2, 3, 2), (3, 3, 2), (4, 4, 2), (99, 4, 2)])
def test_a_stage_bounds_tasks_and_turns_and_the_last_one_has_no_end(rollouts, size, turns):
    packs = grown(rollouts, rollouts_per_stage=2, num_tasks=[2, 3, 4], max_turns=[1, 2])
    for place, (choice, pack) in enumerate(packs.draw(7, 3)):
        assert (choice.index, len(pack)) == (7 + place, size)
        assert {task.max_turns for task in pack.tasks} == {turns}
    assert packs.metrics() == {"source/num_tasks": size, "source/max_turns": turns}


def test_a_state_goes_on_at_its_stage_and_packs_grow_no_further_than_prompts_were_checked_for():
    packs = grown(0, rollouts_per_stage=2, num_tasks=[2, 4])
    packs.load_state_dict(grown(2, rollouts_per_stage=2, num_tasks=[2, 4]).state_dict())
    assert packs.metrics() == {"source/num_tasks": 4}
    with pytest.raises(ConfigError, match=r"data\.source\.num_tasks is \[2, 5\]"):
        grown(0, num_tasks=[2, 5])


def test_a_size_that_the_program_cannot_play_is_refused_before_packs_grow_to_it():
    with pytest.raises(ConfigError, match=r"data\.program\.solves is 2"):
        RolloutDataModule(
            Levers(), HintContext(), TransformersEngine(), ProposeAndSolve(solves=2), Growth(num_tasks=[2, 3, 4])
        )
