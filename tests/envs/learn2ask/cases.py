"""Learn2Ask, for the tests of every world."""

from functools import partial

from hypothesis import strategies as st

from cod_lightning.envs.learn2ask import Learn2Ask
from cod_lightning.envs.learn2ask.items import ITEMS
from tests.envs.case import Case

ANSWERS = st.builds(
    "{0}<answer>{1}{2}</answer>".format,
    st.text(max_size=5),
    st.sampled_from(
        ["<stop />", "<stop/>", *(item.question for item in ITEMS), *(f"ask={item.name}" for item in ITEMS)]
    ),
    st.sampled_from(["", "", "?", " \u00e9"]),
)
CASES = {
    "learn2ask-natural": Case(Learn2Ask, ANSWERS),
    "learn2ask-compact": Case(
        partial(Learn2Ask, num_items=6, num_required=2, num_conditions=3, protocol="compact"), ANSWERS, "compact"
    ),
    "learn2ask-hard": Case(
        partial(Learn2Ask, num_items=12, num_required=4, num_conditions=10, normalise=False), ANSWERS
    ),
    "learn2ask-compact-sum": Case(
        partial(Learn2Ask, num_items=6, num_required=3, protocol="compact", normalise=False), ANSWERS, "compact"
    ),
}
