"""Grid navigation, for the tests of every world."""

from functools import partial

from hypothesis import strategies as st

from cod_lightning.envs.grid import GridNavigation
from tests.envs.case import Case

ANSWERS = st.builds(
    "{0}<answer>{1},{2}{3}</answer>".format,
    st.text(max_size=5),
    st.integers(-1, 5),
    st.sampled_from(("", " ")),
    st.integers(-1, 5),
)
HARD = {"side_min": 10, "side_max": 14, "hills": 5, "world_memory": False}
COMPACT = {
    "protocol": "compact",
    "side_min": 4,
    "side_max": 4,
    "rounds_min": 3,
    "rounds_max": 3,
    "reveal_radius": 0,
    "world_memory": False,
}
# Without world memory: one of the common tests lives several lives with one object, which would go on with the map of the last.
CASES = {
    "grid-natural": Case(partial(GridNavigation, world_memory=False), ANSWERS),
    "grid-hard": Case(partial(GridNavigation, **HARD), ANSWERS),
    "grid-compact": Case(partial(GridNavigation, **COMPACT), ANSWERS, "compact"),
    "grid-compact-near": Case(partial(GridNavigation, **{**COMPACT, "reveal_radius": 1}), ANSWERS, "compact"),
}
