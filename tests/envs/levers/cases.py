"""Levers, for the tests of every world."""

from hypothesis import strategies as st

from cod_lightning.envs.code_labels import NAMES
from cod_lightning.envs.levers import ForbiddenLever, Levers
from cod_lightning.envs.levers.wording import NOUNS
from tests.envs.case import Case

ANSWERS = st.builds(
    "{0}<answer>Lever{1}{2}</answer>".format, st.text(max_size=5), st.sampled_from(" _"), st.integers(-1, 6)
)
NAMED = st.builds(
    "<answer>{0} {1}</answer>".format,
    st.sampled_from(NOUNS),
    st.sampled_from([name for four in NAMES for name in four]),
)
CASES = {
    "levers-natural": Case(Levers, ANSWERS),
    "levers-labels": Case(lambda: Levers(labels="random"), NAMED),
    "levers-compact": Case(lambda: Levers(protocol="compact"), ANSWERS, "compact"),
    "levers-forbidden": Case(ForbiddenLever, ANSWERS),
    "levers-confirmed": Case(
        lambda: ForbiddenLever(rule="confirmed", protocol="compact"),
        ANSWERS | st.just("<answer>confirm</answer>"),
        "compact",
    ),
    "levers-secret": Case(lambda: ForbiddenLever(rule="secret"), ANSWERS),
    "levers-forbidden-first": Case(lambda: ForbiddenLever("first", protocol="compact"), ANSWERS, "compact"),
}
