"""Reference policies through the real rollout."""

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Reference
from cod_lightning.envs.levers import Levers
from cod_lightning.evaluation.references import play_reference, summarise
from cod_lightning.rollout.segments import count_drift
from cod_lightning.types import EpisodeStatus, Group, Split
from tests.cases import each


@each("protocol", ["natural", "compact"])
def test_references_run_through_the_real_rollout_without_drift_or_malformed_text(protocol):
    env = Levers(protocol=protocol)
    packs = [env.sample_pack(split=Split.TEST, index=i, num_tasks=4) for i in range(10)]
    lives = list(play_reference(env, packs, Reference.SCRIPTED, HintContext(protocol, response_limit=None)))
    row = summarise(lives)
    assert count_drift([Group(pack=pack, lifecycles=(life,)) for pack, life in zip(packs, lives, strict=True)]) == 0
    assert (row.num_failed, row.num_malformed, row.num_packs) == (0, 0, 10)
    assert all(e.status is not EpisodeStatus.MALFORMED for life in lives for e in life.episodes)


def test_a_policy_that_raises_is_counted_and_its_missing_rewards_are_not_zeros():
    class Breaking(Levers):
        def step(self, action):
            if "3" in action:
                raise RuntimeError("jammed")
            return super().step(action)

    env = Breaking()
    packs = [env.sample_pack(split=Split.TEST, index=i, num_tasks=2) for i in range(40)]
    lives = list(play_reference(env, packs, Reference.ORACLE, HintContext(response_limit=None)))
    row = summarise(lives)
    assert 0 < row.num_failed < 40
    assert row.success[0].mean == 1.0
    assert row.success[0].num == sum(life.solves[0].reward is not None for life in lives)
