"""Invented domains, for the tests of every world."""

from hypothesis import strategies as st

from cod_lightning.envs.invented import Invented
from cod_lightning.envs.invented.kinds import FAMILIES, POOL
from tests.envs.case import Case

ALL = list(FAMILIES)
ANSWERS = st.builds(
    "{0}<answer>{1} {2}</answer>".format,
    st.text(max_size=5),
    st.sampled_from(["", "? ", POOL[1]]),
    st.sampled_from(POOL),
)
CASES = {
    "invented-natural": Case(lambda: Invented(ALL), ANSWERS),
    "invented-compact": Case(lambda: Invented(ALL, protocol="compact"), ANSWERS, "compact"),
    "invented-unseen-words": Case(
        lambda: Invented(["machine"], words="unseen", protocol="compact"), ANSWERS, "compact"
    ),
}
