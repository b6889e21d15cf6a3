"""Levers, for the tests of every world."""

from hypothesis import strategies as st

from cod_lightning.envs.levers import Levers
from tests.envs.cases import Case

ANSWERS = st.builds(
    "{0}<answer>Lever{1}{2}</answer>".format, st.text(max_size=5), st.sampled_from(" _"), st.integers(-1, 6)
)
CASES = {
    "levers-natural": Case(Levers, ANSWERS),
    "levers-compact": Case(lambda: Levers(protocol="compact"), ANSWERS, "compact"),
}
