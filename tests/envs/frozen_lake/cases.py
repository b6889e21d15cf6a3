"""Lakes, for the tests of every world."""

from hypothesis import strategies as st

from cod_lightning.envs import QuotingDials
from cod_lightning.envs.code_labels import NAMES
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.frozen_lake.labels import NOUNS
from tests.envs.case import Case

ANSWERS = st.builds(
    "{0}<answer>Direction{1}{2}</answer>".format, st.text(max_size=5), st.sampled_from(" _"), st.integers(-1, 6)
)
NAMED = st.builds(
    "<answer>{0} {1}</answer>".format,
    st.sampled_from(NOUNS),
    st.sampled_from([name for four in NAMES for name in four]),
)
CASES = {
    "lake-natural": Case(FrozenLakeObscure, ANSWERS),
    "lake-natural-positions": Case(lambda: FrozenLakeObscure(feedback="positions"), ANSWERS),
    "lake-natural-labels": Case(lambda: FrozenLakeObscure(labels="random"), NAMED),
    "lake-natural-labels-positions": Case(lambda: FrozenLakeObscure(labels="random", feedback="positions"), NAMED),
    "lake-natural-place": Case(
        lambda: FrozenLakeObscure(names_place=True, teacher=QuotingDials(quotes=True, infers=False)), ANSWERS
    ),
    "lake-natural-hard": Case(
        lambda: FrozenLakeObscure(size_min=6, size_max=7, max_turns=10, max_shortest_path=8), ANSWERS
    ),
    "lake-natural-per-task": Case(lambda: FrozenLakeObscure(mapping_scope="per_task", stratify=True), ANSWERS),
    "lake-compact-global": Case(
        lambda: FrozenLakeObscure(protocol="compact", mapping_scope="global"), ANSWERS, "compact"
    ),
    "lake-compact": Case(lambda: FrozenLakeObscure(protocol="compact"), ANSWERS, "compact"),
    "lake-compact-positions": Case(
        lambda: FrozenLakeObscure(protocol="compact", feedback="positions"), ANSWERS, "compact"
    ),
    "lake-compact-3x3": Case(
        lambda: FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, protocol="compact"), ANSWERS, "compact"
    ),
    "lake-compact-8x8": Case(lambda: FrozenLakeObscure(size_min=3, size_max=8, protocol="compact"), ANSWERS, "compact"),
}
