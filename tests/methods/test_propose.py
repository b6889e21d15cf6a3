"""A lifecycle in which the agent proposes its tasks: the order of its episodes. `tests/rollout/test_proposals.py` plays them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.errors import ConfigError
from cod_lightning.lifecycles import asks, outline
from cod_lightning.methods.propose import ProposeAndSolve
from cod_lightning.types import EpisodeKind

SOLVE, UPDATE, PROPOSE = EpisodeKind.SOLVE, EpisodeKind.UPDATE, EpisodeKind.PROPOSE


@given(rounds=st.integers(1, 9), solves=st.integers(2, 6), proposes=st.booleans(), updates=st.booleans())
def test_a_proposal_is_solved_as_often_as_said_and_an_update_follows_unless_it_is_the_last(
    rounds, solves, proposes, updates
):
    program, expected = ProposeAndSolve(solves=solves, proposes=proposes), []
    for number in range(rounds):
        first = number * solves
        expected += [(PROPOSE, first, first)] if proposes else []
        expected += [(SOLVE, n, first) for n in range(first, first + solves)]
        expected += [(UPDATE, first + solves - 1, first)] if updates and number < rounds - 1 else []
    assert list(outline(program, rounds * solves, updates)) == expected
    assert asks(program, rounds * solves) == proposes


def test_solve_episodes_of_a_proposal_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match=r"data\.program\.solves is 4; expected a divisor of the 6 tasks"):
        outline(ProposeAndSolve(), 6)
