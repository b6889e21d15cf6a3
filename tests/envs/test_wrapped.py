"""A world around another one answers for it in everything that it does not change."""

from cod_lightning.envs.base import HiddenRules, Traits, Vocabulary, beside
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.envs.ralph_loop import RalphLoop
from cod_lightning.envs.wrapped import WrappedWorld, innermost
from cod_lightning.types import EpisodeStatus, Split
from tests.stubs import WordWorld


class UnusualRules(HiddenRules):
    def changed(self, pack, at, seed):
        self.env.asked = (at, seed)
        return pack


class Unusual(WordWorld):
    """Differs from every default in all that a rollout asks a world for."""

    companions = (UnusualRules, *WordWorld.companions)

    traits = Traits(reward_range=(-3.0, 8.0), blocking=True)
    closed = 0

    def __init__(self):
        super().__init__(max_turns=7)

    @property
    def status(self):
        return EpisodeStatus.TRUNCATED

    @property
    def success(self):
        return True

    @property
    def rules(self):
        return "unusual rules"

    def close(self):
        self.closed += 1


def test_what_a_rollout_asks_of_a_wrapped_world_is_answered_by_the_one_inside():
    inside = Unusual()
    for outside in (WrappedWorld(inside), RalphLoop(inside), NonStationary(inside, change_at=1)):
        for name in ("traits", "max_turns", "status", "success", "rules"):
            assert getattr(outside, name) == getattr(inside, name), name
        assert beside(outside, Vocabulary).words() == beside(inside, Vocabulary).words()
        before = inside.closed
        outside.close()
        assert inside.closed == before + 1


def test_a_world_that_holds_another_as_inside_and_does_not_delegate_to_it_is_its_own_innermost():
    world, holder = WordWorld(), WordWorld()
    holder.inside = world
    assert innermost(RalphLoop(holder)) is holder
    assert innermost(NonStationary(RalphLoop(world))) is world


def test_a_rule_changes_into_another_one_for_every_run_seed_and_pack():
    inside = Unusual()
    world = NonStationary(inside, change_at=2)
    seen = set()
    for seed in range(3):
        for index in range(4):
            world.sample_pack(split=Split.TRAIN, index=index, num_tasks=4, seed=seed)
            assert inside.asked[0] == 2
            seen.add(inside.asked[1])
    assert len(seen) == 12
