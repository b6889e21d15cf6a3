"""The natural rendering: sentences, tables, and formulas in an XML element."""

import html
import random
import re
from collections.abc import Sequence
from dataclasses import replace

from cod_lightning.envs.answers import only_answer
from cod_lightning.envs.control.draws import ControlParameters
from cod_lightning.envs.control.evidence import NAMES, Earlier
from cod_lightning.envs.control.plans import careful_formula, planned_formula
from cod_lightning.envs.control.plant import EXACT, PENALTY, SPEED_WEIGHT, ControlTask, PlantBelief, PlantRun
from cod_lightning.types import Message

_FORM = "<answer><action_expression>FORMULA</action_expression></answer>"
_NUMBER = r"(-?\d+(?:\.\d+)?(?:e[+-]\d+)?)"


class NaturalControl:
    """Full sentences. Facts as in the reference, sentences our own; the rules state the ranges of the hidden numbers."""

    def __init__(self, parameters: ControlParameters) -> None:
        self.parameters = parameters

    @property
    def rules(self) -> str:
        """System text."""
        r = self.parameters
        return (
            "You steer a point on a line, with position x, velocity v and control u. At each step\n"
            "  next v = a * v + b * u\n"
            "  next x = x + next v\n"
            f"where u is cut to -1..1. The hidden numbers are a and b: a lies between {r.a_min:g} and {r.a_max:g}, the size of b "
            f"between {r.b_min:g} and {r.b_max:g}, and b may be negative. They stay the same in related tasks, while start, target "
            "and number of steps differ, so what you find out may pay later.\n\n"
            "You give one formula for u, which is computed anew at every step. The loss is L = (x_T - x_target)**2 + "
            f"{SPEED_WEIGHT:g}*(v_T - v_target)**2 + {PENALTY:g}*(sum of u**2), where T is the number of steps, and the reward is "
            "1/(1 + L).\n\n"
            f"Names: {', '.join(NAMES)}; t is 0, 1, 2, ..., and remaining_steps is max(1, horizon - t). Besides "
            "there are numbers, + - * / **, comparisons, and, or, not, `p if c else q`, and the functions abs(p), min(p,q), "
            "max(p,q), pow(p,q), clip(p,low,high), ifelse(c,p,q), lt, le, gt, ge, eq, ne (each of p,q). Nothing else: no other "
            "names, no assignments. The value must be a finite number, not true or false; if it is not, the reward is 0.\n\n"
            "Examples of the form: 0.2*(x_target - x) - 0.4*v or ifelse(lt(t,3),0.5,-0.3*v).\n\n"
            "Answer with brief reasoning, then exactly one formula in this form, with nothing after it and no code fences:\n"
            f"{_FORM}\nAn answer that cannot be read is worth -0.1."
        )

    def observation(self, task: ControlTask, earlier: Earlier | None) -> str:
        """What is seen before the answer."""
        text = (
            f"Start x = {task.x:.3f}, v = {task.v:.3f}; target x = {task.target_x:.3f}, v = 0.000; {task.horizon} "
            "steps.\nGive the formula for u."
        )
        if earlier:
            text += (
                "\n\nEvidence from an earlier attempt in this environment (its start and target may differ): u = "
                f"{earlier.formula}\nIt started at x = {earlier.task.x:.3f}, v = {earlier.task.v:.3f} with target x = "
                f"{earlier.task.target_x:.3f} and {earlier.task.horizon} steps. Reward {_small(earlier.reward)}; it ended "
                f"{earlier.miss_x:+.3f} from the target in x and {earlier.miss_v:+.3f} in v."
            )
        return text

    def finished(self, task: ControlTask, run: PlantRun) -> str:
        """Feedback after a law that ran to the end."""
        lines = [f"{'t':>3} {'x':>10} {'v':>10} {'u':>8}"]
        for t, (x_t, v_t) in enumerate(zip(run.xs, run.vs, strict=True)):
            shown = f" {run.us[t]:>8.3f}" if t < task.horizon else ""
            lines.append(f"{t:>3} {x_t:>10.3f} {v_t:>10.3f}{shown}")
        return (
            "The formula ran to the end:\n"
            + "\n".join(lines)
            + f"\nLast state x = {run.xs[-1]:.3f}, v = {run.vs[-1]:.3f}; "
            f"target x = {task.target_x:.3f}, v = 0.000. Loss L = {_small(run.loss)}, reward "
            f"{_small(run.reward)}."
        )

    def failed(self, step: int, reason: str) -> str:
        """Feedback after a law that failed at a step."""
        return f"The formula failed at step {step}: {reason}. The reward is 0."

    def unreadable(self, complaint: str) -> str:
        """Feedback after an answer that cannot be read."""
        expected = f"Expected {_FORM} with one formula over {', '.join(NAMES)}, and nothing after it."
        return f"Your answer could not be read: {complaint}. {expected} The task is over."

    def formula_in(self, response: str) -> tuple[str, str]:
        """The text of the one element; &lt; &gt; &amp; are read as in XML."""
        answer, complaint = only_answer(response)
        if complaint:
            return "", complaint
        start, end = "<action_expression>", "</action_expression>"
        if not (answer.startswith(start) and answer.endswith(end) and answer.count(start) == answer.count(end) == 1):
            return "", "the answer is not one action_expression element"
        return html.unescape(answer[len(start) : -len(end)][:10_000]), ""

    def respond(self, formula: str) -> str:
        """A well-formed response."""
        return f"I steer with this. {_FORM.replace('FORMULA', formula)}"

    def chosen(self, belief: PlantBelief, task: ControlTask, rng: random.Random) -> str:
        """A good response for that belief."""
        return self.respond(planned_formula(belief, task) if belief.knows_b else careful_formula(task))

    def seen(self, messages: Sequence[Message]) -> tuple[ControlTask, Earlier | None]:
        """Task (its hidden numbers 0) and earlier law, read back from a dialogue."""
        text = messages[1].content
        start = re.search(rf"Start x = {_NUMBER}, v = {_NUMBER}; target x = {_NUMBER}, .*; (\d+) steps", text)
        assert start is not None, "the observation does not state the task"
        x_0, v_0, target = map(float, start.groups()[:3])
        task = ControlTask(a=0, b=0, x=x_0, v=v_0, target_x=target, horizon=int(start[4]))
        evidence = re.search(
            rf"Evidence.*: u = (.*)\nIt started at x = {_NUMBER}, v = {_NUMBER} with target x = {_NUMBER} and (\d+) "
            rf"steps. Reward {_NUMBER}; it ended \+?{_NUMBER} from the target in x and \+?{_NUMBER} in v",
            text,
        )
        if evidence is None:
            return task, None
        formula, *numbers = evidence.groups()
        x_0, v_0, target, steps, reward, miss_x, miss_v = map(float, numbers)
        ran = replace(task, x=x_0, v=v_0, target_x=target, horizon=int(steps))
        return task, Earlier(formula=formula, task=ran, reward=reward, miss_x=miss_x, miss_v=miss_v)

    def noted(self, text: str) -> PlantBelief:
        """What a note says; the prior for what it does not."""
        prior = self.parameters.prior
        a_mean, a_error = _stated(text, "a", (prior.a, prior.a_error))
        b_mean, b_error = _stated(text, "b", (prior.b, prior.b_error))
        return PlantBelief(a_mean, b_mean, a_error, b_error)

    def recorded(self, messages: Sequence[Message]) -> PlantBelief:
        """What the dialogue of an update episode states: the old note, sharpened by the run."""
        text = "\n".join(message.content for message in messages)
        vs, us = _table(text)
        belief = self.noted(text)
        return self.parameters.learned(belief, vs, us) if us else belief

    def write(self, belief: PlantBelief) -> str:
        """A note."""
        known_a = f"a = {belief.a:.3f} (+- {belief.a_error:.4f})" if self.parameters.knows_a(belief) else "a is unknown"
        known_b = f"b = {belief.b:.3f} (+- {belief.b_error:.4f})" if belief.knows_b else "b is unknown"
        return f"- Found from tables of runs: {known_a}, {known_b}."


def _small(value: float) -> str:
    """Three decimals, or scientific where those would be lost.

    >>> _small(0.25), _small(0.00012)
    ('0.250', '1.2e-04')
    """
    return f"{value:.1e}" if 0 < abs(value) < 0.001 else f"{value:.3f}"


def _stated(text: str, name: str, default: tuple[float, float]) -> tuple[float, float]:
    found = re.findall(rf"\b{name} = (-?\d+\.\d+) \(\+- (\d+\.\d+)\)", text, flags=re.ASCII)
    return (float(found[-1][0]), max(EXACT, float(found[-1][1]))) if found else default


def _table(text: str) -> tuple[list[float], list[float]]:
    """Velocities and controls of the last table in a text; empty where there is none."""
    rows = re.findall(rf"^ *(\d+) +{_NUMBER} +{_NUMBER}(?: +{_NUMBER})?$", text, flags=re.MULTILINE)
    first = max((i for i, row in enumerate(rows) if row[0] == "0"), default=len(rows))
    last = rows[first:]
    return [float(row[2]) for row in last], [float(row[3]) for row in last if row[3]]
