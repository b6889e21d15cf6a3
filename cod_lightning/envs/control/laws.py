"""Laws that need no formula: the eight words of the compact protocol, and how one is chosen."""

import itertools
import random
from dataclasses import replace

from cod_lightning.envs.control.belief import PlantBelief, PlantRanges
from cod_lightning.envs.control.plant import ControlTask, Law, run

GAINS = {"firm": (0.6, 1.0), "soft": (0.3, 0.5), "braked": (0.45, 1.4), "even": (0.3, 0.7)}
"""Of proportional-derivative laws, each the best one for one half of the usual a and one half of the usual |b|."""
LAWS = tuple(sign + name for sign in "+-" for name in GAINS)


def formula_of(word: str, symbols: tuple[str, ...]) -> str:
    """The law as a formula.

    >>> formula_of("-soft", ("x", "v", "u", "a", "b"))
    '-(0.3*(x_target - x) - 0.5*v)'
    """
    pull, brake = GAINS[word[1:]]
    x, v = symbols[:2]
    return f"{'-' if word[0] == '-' else ''}({pull:g}*({x}_target - {x}) - {brake:g}*{v})"


def law_of(word: str, target: float) -> Law:
    """The same as a function."""
    pull, brake = GAINS[word[1:]]
    sign = -1.0 if word[0] == "-" else 1.0
    return lambda t, x, v: sign * (pull * (target - x) - brake * v)


def best_law(belief: PlantBelief, ranges: PlantRanges, task: ControlTask, rng: random.Random) -> str:
    """The word of the best mean reward over what is believed; where b's sign is not known, it is guessed."""
    if not belief.knows_b:
        belief = replace(belief, b=rng.choice((-1, 1)) * (ranges.b_min + ranges.b_max) / 2, b_error=ranges.b_max / 4)
    sign = "+" if belief.b > 0 else "-"
    points = [
        replace(task, a=belief.a + i * belief.a_error, b=belief.b + j * belief.b_error)
        for i, j in itertools.product((-1, 0, 1), repeat=2)
    ]

    def mean_reward(word: str) -> float:
        return sum(run(point, law_of(word, task.target_x)).reward for point in points)

    return max((sign + name for name in GAINS), key=mean_reward)
