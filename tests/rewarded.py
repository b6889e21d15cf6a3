"""Lifecycles of the lever world's own player whose rewards have further parts."""

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.lifecycles import ConnectTheDots
from cod_lightning.rewards.base import rewards_of
from cod_lightning.rollout.deadlines import Deadlines
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Split

NUM_TASKS = 3


def play(deadlines=None, *, num_packs=3, num_siblings=2, program=None, **parts):
    """The groups of so many packs of three tasks."""
    world, mechanism = Levers(), HintContext()
    packs = [world.sample_pack(split=Split.TRAIN, index=i, num_tasks=NUM_TASKS) for i in range(num_packs)]
    sampler = scripted_sampler(beside(world, Players).reference(Reference.SCRIPTED, packs[0]), mechanism)
    sampler = type(sampler)(**{**vars(sampler), "deadlines": deadlines or Deadlines()})
    program = program or ConnectTheDots()
    setting = Setting(env=world, mechanism=mechanism, sampler=sampler, rewards=rewards_of(parts), program=program)
    return run_groups(packs, num_siblings, setting)
