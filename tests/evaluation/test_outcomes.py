"""Outcomes keep what is missing missing."""

import numpy as np
import pytest

from cod_lightning.errors import DataError
from cod_lightning.evaluation.outcomes import Outcomes, position_means
from tests.records import lifecycle


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
