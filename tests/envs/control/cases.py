"""Optimal Control, for the tests of every world."""

from functools import partial

from hypothesis import strategies as st

from cod_lightning.envs.control import OptimalControl
from cod_lightning.envs.control.fused import LAWS
from tests.envs.case import Case

FORMULAS = st.sampled_from(
    (
        "0",
        "0.3*(x_target - x) - 0.7*v",
        "ifelse(lt(t,3),1,-v)",
        "clip(x/remaining_steps,-1,1) if v < 0 else -1",
        "1/(t-3)",
        "x > 0",
        "9**9**9",
        "t.real",
        "'a'",
    )
)
ANSWERS = st.builds(
    "{0}<answer><action_expression>{1}</action_expression></answer>{2}".format,
    st.text(max_size=5),
    FORMULAS | st.text(max_size=20),
    st.sampled_from(("", "", "", "\n", " so", "```")),
)
LAW_WORDS = st.builds("<answer>{0}</answer>".format, st.sampled_from((*LAWS, "firm", "+", "")))
COMPACT = {
    "protocol": "compact",
    "start_max": 1,
    "speed_max": 0,
    "target_max": 3,
    "horizon": 8,
    "world_memory": False,
}
# Without world memory: one of the common tests lives several lives with one object, which would show the last life's law.
CASES = {
    "control-natural": Case(partial(OptimalControl, world_memory=False), ANSWERS),
    "control-compact": Case(partial(OptimalControl, **COMPACT), LAW_WORDS, "compact"),
}
