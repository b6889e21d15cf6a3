"""Reference policies through the real rollout; outcomes keep what is missing missing, and are read without torch."""

import subprocess
import sys

import numpy as np
import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Reference
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import DataError
from cod_lightning.evaluation.outcomes import Outcomes, position_means
from cod_lightning.evaluation.references import play_reference, summarise
from cod_lightning.rollout.segments import count_drift
from cod_lightning.types import EpisodeStatus, Group, Split
from tests.cases import each
from tests.records import lifecycle


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


def test_a_failed_episode_is_missing_and_never_a_reward_of_0() -> None:
    outcomes = Outcomes.of([lifecycle("a", (True, None)), lifecycle("b", (False, True))])
    assert np.isnan(outcomes.rewards).tolist() == [[False, True], [False, False]]
    assert np.isnan(outcomes.success[0, 1])
    assert outcomes.malformed is not None
    assert np.isnan(outcomes.malformed).tolist() == [[False, True], [False, False]]
    assert position_means(outcomes.rewards).tolist() == [0.5, 1.0]


def test_rows_come_in_the_order_that_is_asked_for_and_what_has_no_place_of_its_own_is_refused() -> None:
    outcomes = Outcomes.of([lifecycle("a", (True, True)), lifecycle("b", (False, True))])
    assert outcomes.rows(["b", "a"]).success[:, 0].tolist() == [0, 1]
    with pytest.raises(DataError, match=r"2 to 3 tasks cannot be .* Give the program a `held_out`"):
        Outcomes.of([lifecycle("a", (True, True)), lifecycle("b", (True, True, True))])
    with pytest.raises(AssertionError, match="twice"):
        Outcomes.of([lifecycle("a", (True, True)), lifecycle("a", (True, True))])


NAMES = ("outcomes", "intervals", "suite", "figures", "schema", "results", "wording", "table")


@pytest.mark.slow
def test_only_the_metrics_need_torch() -> None:
    imports = "; ".join(f"import cod_lightning.evaluation.{name}" for name in NAMES)
    check = "import sys; assert not {'torch', 'lightning', 'matplotlib'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", f"{imports}; {check}"], check=True)
