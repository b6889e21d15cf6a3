"""Lakes, for the tests of every world."""

from hypothesis import strategies as st

from cod_lightning.envs import QuotingDials
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from tests.envs.case import Case

ANSWERS = st.builds(
    "{0}<answer>Direction{1}{2}</answer>".format, st.text(max_size=5), st.sampled_from(" _"), st.integers(-1, 6)
)
CASES = {
    "lake-natural": Case(FrozenLakeObscure, ANSWERS),
    "lake-natural-positions": Case(lambda: FrozenLakeObscure(feedback="positions"), ANSWERS),
    "lake-natural-place": Case(
        lambda: FrozenLakeObscure(names_place=True, teacher=QuotingDials(quotes=True, infers=False)), ANSWERS
    ),
    "lake-natural-hard": Case(
        lambda: FrozenLakeObscure(size_min=6, size_max=7, max_turns=10, max_shortest_path=8), ANSWERS
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
