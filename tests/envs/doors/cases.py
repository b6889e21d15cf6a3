"""Doors, for the tests of every world."""

from hypothesis import strategies as st

from cod_lightning.envs.doors import Doors
from cod_lightning.envs.doors.wording import KEYS
from tests.envs.case import Case

ANSWERS = st.builds(
    "{0}<answer>Key{1}{2}</answer>".format, st.text(max_size=5), st.sampled_from(" _"), st.sampled_from((*KEYS, "pink"))
)
CASES = {
    "doors-natural": Case(lambda: Doors(num_doors=5, glimpses=2), ANSWERS),
    "doors-compact": Case(lambda: Doors(num_doors=8, protocol="compact"), ANSWERS, "compact"),
}
