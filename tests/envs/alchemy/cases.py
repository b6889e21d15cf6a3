"""Alchemy, for the tests of every world."""

from hypothesis import strategies as st

from cod_lightning.envs.alchemy import Alchemy
from tests.envs.alchemy.worlds import COMPACT, DEEP, HARD, MANY, SMALL
from tests.envs.case import Case

NAMES = st.sampled_from([*"abcklmpqruvx", "  a", "B ", "nothing", ""])
ANSWERS = st.builds(
    "{0}<answer>{1}{2}{3}</answer>".format, st.text(max_size=5), NAMES, st.sampled_from(["+", " + ", "++", " "]), NAMES
)
CASES = {
    "alchemy-natural": Case(Alchemy, ANSWERS),
    "alchemy-hard": Case(lambda: Alchemy(**HARD), ANSWERS),
    "alchemy-many": Case(lambda: Alchemy(**MANY), ANSWERS),
    "alchemy-compact": Case(lambda: Alchemy(**COMPACT), ANSWERS, "compact"),
    "alchemy-compact-small": Case(lambda: Alchemy(**SMALL), ANSWERS, "compact"),
    "alchemy-compact-deep": Case(lambda: Alchemy(**DEEP), ANSWERS, "compact"),
}
