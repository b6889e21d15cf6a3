"""The compact rendering: fused words for tiny policies."""

import itertools
import random
import re
from collections.abc import Sequence
from dataclasses import replace

from cod_lightning.envs.answers import only_answer
from cod_lightning.envs.control.draws import ControlParameters
from cod_lightning.envs.control.evidence import NAMES, Earlier
from cod_lightning.envs.control.plant import ControlTask, Law, PlantBelief, PlantRun, run
from cod_lightning.envs.expressions import compile_expression
from cod_lightning.types import Message

GAINS = {"firm": (0.6, 1.0), "soft": (0.3, 0.5), "braked": (0.45, 1.4), "even": (0.3, 0.7)}
"""Of proportional-derivative laws, each the best one for one half of the usual a and one half of the usual |b|."""
LAWS = tuple(sign + name for sign in "+-" for name in GAINS)


def formula_of(word: str) -> str:
    """The law as a formula.

    >>> formula_of("-soft")
    '-(0.3*(x_target - x) - 0.5*v)'
    """
    pull, brake = GAINS[word[1:]]
    return f"{'-' if word[0] == '-' else ''}({pull:g}*(x_target - x) - {brake:g}*v)"


def law_of(word: str, target: float) -> Law:
    """The same as a function."""
    pull, brake = GAINS[word[1:]]
    sign = -1.0 if word[0] == "-" else 1.0
    return lambda t, x, v: sign * (pull * (target - x) - brake * v)


def best_law(belief: PlantBelief, p: ControlParameters, task: ControlTask, rng: random.Random) -> str:
    """The word of the best mean reward over what is believed; where b's sign is not known, it is guessed."""
    if not belief.knows_b:
        belief = replace(belief, b=rng.choice((-1, 1)) * (p.b_min + p.b_max) / 2, b_error=p.b_max / 4)
    sign = "+" if belief.b > 0 else "-"
    points = [
        replace(task, a=belief.a + i * belief.a_error, b=belief.b + j * belief.b_error)
        for i, j in itertools.product((-1, 0, 1), repeat=2)
    ]

    def mean_reward(word: str) -> float:
        return sum(run(point, law_of(word, task.target_x)).reward for point in points)

    return max((sign + name for name in GAINS), key=mean_reward)


GRADES = ("good", "fair", "poor")
"""Of a reward: from 0.9, from 0.5, below."""
_WORD_OF = {compile_expression(formula_of(law), NAMES).text: law for law in LAWS}


def class_words(p: ControlParameters, belief: PlantBelief) -> list[str]:
    """Classes of what is known, such as `b=-big` and `a=damped`, with `?` for the rest."""
    sign = "+" if belief.b > 0 else "-"
    size = "small" if abs(belief.b) < (p.b_min + p.b_max) / 2 else "big"
    decay = "damped" if belief.a < (p.a_min + p.a_max) / 2 else "lively"
    return [f"b={sign}{size}" if belief.knows_b else "b=?", f"a={decay}" if p.knows_a(belief) else "a=?"]


class CompactControl:
    """`x=-1 v=+0 to=+3`, answered by a law such as `-firm`; feedback `poor b=+big a=damped`.

    The three grades: good from reward 0.9, fair from 0.5, poor below. Signs and halves of the ranges stand for numbers.
    """

    def __init__(self, parameters: ControlParameters) -> None:
        self.parameters = parameters

    @property
    def rules(self) -> str:
        return "control"

    def observation(self, task: ControlTask, earlier: Earlier | None) -> str:
        words = [f"x={task.x:+.0f}", f"v={task.v:+.0f}", f"to={task.target_x:+.0f}"]
        if earlier:
            words.append(f"had={_WORD_OF[earlier.formula]}:{_grade(earlier.reward)}")
        return " ".join(words)

    def finished(self, task: ControlTask, run: PlantRun) -> str:
        belief = self.parameters.learned(self.parameters.prior, run.vs, run.us)
        return " ".join([_grade(run.reward), *(w for w in class_words(self.parameters, belief) if not w.endswith("?"))])

    def failed(self, step: int, reason: str) -> str:
        """No law can fail; as for an unreadable answer."""
        return "malformed"

    def unreadable(self, complaint: str) -> str:
        return "malformed"

    def formula_in(self, response: str) -> tuple[str, str]:
        answer, complaint = only_answer(response)
        if not complaint and answer not in LAWS:
            complaint = "the answer is not a law"
        return ("", complaint) if complaint else (formula_of(answer), "")

    def respond(self, formula: str) -> str:
        return f"<answer>{formula}</answer>"

    def chosen(self, belief: PlantBelief, task: ControlTask, rng: random.Random) -> str:
        return self.respond(best_law(belief, self.parameters, task, rng))

    def seen(self, messages: Sequence[Message]) -> tuple[ControlTask, Earlier | None]:
        """Numbers from their words; earlier laws are not used."""
        shown = dict(word.split("=", 1) for word in messages[1].content.split() if "=" in word)
        x, v, target = (float(shown[key]) for key in ("x", "v", "to"))
        return ControlTask(a=0, b=0, x=x, v=v, target_x=target, horizon=self.parameters.horizon), None

    def noted(self, text: str) -> PlantBelief:
        """The middle of each class; the last word on a number counts."""
        r, prior = self.parameters, self.parameters.prior
        a, b, a_error, b_error = prior.a, prior.b, prior.a_error, prior.b_error
        a_mid, b_mid = (r.a_min + r.a_max) / 2, (r.b_min + r.b_max) / 2
        for word in text.split():
            if word in ("a=damped", "a=lively"):
                a, a_error = (r.a_min + a_mid) / 2 if word == "a=damped" else (a_mid + r.a_max) / 2, prior.a_error / 2
            elif match := re.fullmatch(r"b=([+-])(small|big)", word):
                size = (r.b_min + b_mid) / 2 if match[2] == "small" else (b_mid + r.b_max) / 2
                b, b_error = float(match[1] + "1") * size, (b_mid - r.b_min) / 12**0.5
        return PlantBelief(a, b, a_error, b_error)

    def recorded(self, messages: Sequence[Message]) -> PlantBelief:
        return self.noted(" ".join(message.content for message in messages))

    def write(self, belief: PlantBelief) -> str:
        return " ".join(class_words(self.parameters, belief))

    def words(self) -> tuple[str, ...]:
        p = self.parameters
        start, speed, target = int(p.start_max), int(p.speed_max), int(p.target_max)
        return (
            "control",
            *(f"x={n:+d}" for n in range(-start, start + 1)),
            *(f"v={n:+d}" for n in range(-speed, speed + 1)),
            *(f"to={n:+d}" for n in range(-target, target + 1)),
            *(f"had={law}:{grade}" for law in LAWS for grade in GRADES),
            *(f"b={sign}{size}" for sign in "+-" for size in ("small", "big")),
            *("b=?", "a=damped", "a=lively", "a=?"),
            *(f"<answer>{law}</answer>" for law in LAWS),
            *GRADES,
            "malformed",
        )


def _grade(reward: float) -> str:
    return "good" if reward >= 0.9 else "fair" if reward >= 0.5 else "poor"
