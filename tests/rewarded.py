"""Lifecycles of the lever world's own player whose rewards have further parts."""

from cod_lightning.contexts import HintContext
from cod_lightning.envs.levers import Levers
from cod_lightning.lifecycles import ConnectTheDots
from cod_lightning.rewards.base import rewards_of
from tests.word_play import scripted

NUM_TASKS = 3


def play(deadlines=None, *, num_packs=3, num_siblings=2, program=None, **parts):
    """The groups of so many packs of three tasks."""
    setting = {"rewards": rewards_of(parts), "program": program or ConnectTheDots(), "deadlines": deadlines}
    return scripted(Levers(), HintContext(), num_packs=num_packs, num_siblings=num_siblings, **setting)
