"""Play of PDE Discovery in sentences: by measurements and notes, or with the equation known."""

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cod_lightning.envs.base import TextPolicy
from cod_lightning.envs.pde.evidence import LEAST_NOISE, EquationBelief, believe, misfit
from cod_lightning.envs.pde.library import TERMS, Equation, equation_of, parse_equation, support, written
from cod_lightning.envs.pde.parameters import PDEParameters
from cod_lightning.envs.pde.regression import SATURATED
from cod_lightning.envs.players import Play
from cod_lightning.types import Message, Role

Pairs = tuple[tuple[float, float], ...]
_PAIR = re.compile(r"\bu=(-?\d\.\d{4})\s+y=(-?\d\.\d{4})(?!\d)", flags=re.ASCII)
_EQUATION = re.compile(r"Preferred equation \((confirmed|likely|open)\): (f\(u\) = [^\n]{1,400})", flags=re.ASCII)
_MOST_PAIRS = 64
_SCOUTS = ((0.25, 0.0), (0.5, 0.0), (0.75, 0.0))
_BLIND = ((0.5, 0.0), (0.25, 0.02), (0.75, 0.02), (0.5, 0.03), (0.5, 0.06), (0.5, 0.1))
_BAD_MISFIT = 6.0
"""Above it the noise cannot explain the errors."""
_ROW = re.compile(r"x=(\d\.\d+) t=(\d\.\d+) u=(-?\d\.\d+) y=(-?\d\.\d+)", flags=re.ASCII)


@dataclass(frozen=True)
class Note:
    """A context of PDE Discovery."""

    pairs: Pairs = ()
    """Measured (u, f(u)), oldest first; cut ones left out."""
    equation: Equation = ()
    trust: str = "open"
    """confirmed (known), likely, or open."""


def pairs_in(text: str) -> Pairs:
    """All different measurements in a text, in order.

    >>> pairs_in("x=0.5 t=0.01 u=1.2000 y=-0.5000 error=0.1, u=1.2000 y=-0.5000, u=2.0000 y=-3.0001")
    ((1.2, -0.5),)
    """
    found = ((float(u), float(y)) for u, y in _PAIR.findall(text))
    return tuple(dict.fromkeys(pair for pair in found if abs(pair[1]) < SATURATED))


def read_note(text: str) -> Note:
    """A note out of a context, or out of a system text that holds one."""
    matches = _EQUATION.findall(text)
    trust, shown = matches[-1] if matches else ("open", "")
    return Note(pairs_in(text), parse_equation(shown)[0], trust)


def write_note(note: Note) -> str:
    """Two bullets at most; the latest measurements where there are too many."""
    lines = []
    if note.equation:
        lines.append(f"- Preferred equation ({note.trust}): {written(note.equation)}")
    if note.pairs:
        shown = ", ".join(f"u={u:.4f} y={y:.4f}" for u, y in note.pairs[-_MOST_PAIRS:])
        lines.append(f"- Measured so far, y being f(u): {shown}")
    return "\n".join(lines) or "- Nothing is known yet."


@dataclass(frozen=True)
class PDEPlay(Play[Note]):
    """Keeps every measurement it sees; weighs all sets of terms by their evidence; submits the most probable equation."""

    parameters: PDEParameters

    @property
    def noise(self) -> float:
        """Of measured u."""
        return max(self.parameters.noise_level, LEAST_NOISE)

    @property
    def nothing(self) -> Note:
        return Note()

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        state = _State.of(messages)
        if not state.sampled:
            points = [(rng.uniform(0.01, 0.99), rng.uniform(0.0, 1.0)) for _ in range(self.parameters.point_budget)]
            return sample(points)
        if state.best:
            return finalise(state.best)
        return fit_terms(rng.sample(TERMS, rng.randint(1, self.parameters.max_terms)))

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> Note:
        return read_note(messages[0].content) if trust_context else Note()

    def answer(self, messages: Sequence[Message], known: Note, rng: random.Random) -> str:
        """Sample (first to see how high the state is), fit, finalise."""
        state = _State.of(messages)
        left = self.parameters.max_turns - state.turn
        if state.points_left and left > 2 and not state.best:
            if not self.parameters.show_samples:
                return sample(_BLIND[-state.points_left :]) if not state.sampled else fit_terms(TERMS)
            if not state.sampled and left > 3 and state.points_left > len(_SCOUTS):
                return sample(_SCOUTS)
            return sample(_spread(state.rows, state.points_left))
        believed = self.belief(known, pairs_in(state.seen))
        if believed is None or (not state.best and not self.parameters.show_samples and left > 2):
            return finalise(state.best) if state.best else fit_terms(TERMS)
        if state.best and (left == 1 or state.proposed == believed.equations[0]):
            return finalise(state.proposed or state.best)
        return fit_equations(believed.equations)

    def belief(self, noted: Note, seen: Pairs) -> EquationBelief | None:
        """What measurements and a trusted equation say; where they contradict one another, only what was seen counts."""
        both = tuple(dict.fromkeys((*noted.pairs, *seen)))
        if not both:
            return None
        boost = {"confirmed": 12.0, "likely": 0.0 if noted.pairs else 3.0}.get(noted.trust, 0.0)
        if noted.equation and seen and len(seen) < len(both) and misfit(noted.equation, seen, self.noise) > 100:
            boost = 0.0
        low, high = self.parameters.min_terms, self.parameters.max_terms
        boosts = {support(noted.equation): boost} if boost else None
        believed = believe(both, low, high, boosts, noise=self.noise)
        if believed.misfit > _BAD_MISFIT and len(seen) < len(both) and seen:
            alone = believe(seen, low, high, noise=self.noise)
            return alone if alone.misfit < believed.misfit else believed
        return believed

    def recorded(self, messages: Sequence[Message]) -> Note:
        """The old note in the fenced hints, and what the record of the task adds."""
        text = "\n".join(message.content for message in messages[1:])
        old_text, _, rest = text.partition("# Record of the task")
        old, seen = read_note(old_text), pairs_in(rest)
        believed = self.belief(old, seen)
        if believed is None:
            return old
        both = tuple(dict.fromkeys((*old.pairs, *seen)))
        agree = not both or misfit(believed.equations[0], both, self.noise) <= max(_BAD_MISFIT, believed.misfit)
        kept = both if agree else seen
        if old.trust == "confirmed" and support(old.equation) == support(believed.equations[0]):
            return Note(kept, believed.equations[0], "confirmed")
        return Note(kept, believed.equations[0], "likely" if believed.probabilities[0] > 0.8 else "open")

    def noisy(self, facts: Note, accuracy: float, rng: random.Random) -> Note:
        pairs = tuple(pair for pair in facts.pairs if rng.random() < accuracy)
        kept = facts if rng.random() < accuracy else self.junk(rng)
        return replace(kept, pairs=pairs)

    def junk(self, rng: random.Random) -> Note:
        terms = rng.sample(TERMS, rng.randint(self.parameters.min_terms, self.parameters.max_terms))
        equation = equation_of({term: rng.choice((-1, 1)) * round(rng.uniform(0.5, 2.0), 2) for term in terms})
        return Note(equation=equation, trust="likely")

    def write(self, facts: Note, messages: Sequence[Message] = ()) -> str:
        return write_note(facts)


@dataclass(frozen=True)
class PDEOracle(TextPolicy):
    """Knows the equation; measures one point and scores it, since that is required."""

    truth: Equation

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        state = _State.of(messages)
        if state.proposed:
            return finalise(self.truth)
        # late enough that the reading is not cut
        return fit_equations([self.truth]) if state.sampled else sample([(0.5, 0.3)])

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return write_note(Note(equation=self.truth, trust="confirmed"))


def sample(points: Sequence[tuple[float, float]]) -> str:
    """A sampling action."""
    inner = "".join(f'<point x="{x:.3f}" t="{t:.4f}"/>' for x, t in points)
    return f"I measure. <answer><sample_pde_data>{inner}</sample_pde_data></answer>"


def fit_terms(terms: Sequence[str]) -> str:
    """A regression over a dictionary."""
    inner = "all" if len(terms) == len(TERMS) else "; ".join(terms)
    return f"I fit. <answer><run_sparse_regression><dictionary>{inner}</dictionary></run_sparse_regression></answer>"


def fit_equations(equations: Sequence[Equation]) -> str:
    """A regression over equations."""
    inner = "; ".join(map(written, equations))
    return (
        "I score my equations. <answer><run_sparse_regression><candidate_equations>"
        f"{inner}</candidate_equations></run_sparse_regression></answer>"
    )


def finalise(equation: Equation) -> str:
    """The last action."""
    return (
        "I commit. <answer><update_scientific_context><preferred_equation>"
        f"{written(equation)}</preferred_equation></update_scientific_context></answer>"
    )


@dataclass(frozen=True)
class _State:
    """A task as read back from its dialogue."""

    turn: int
    """Steps taken."""
    points_left: int
    sampled: bool
    best: Equation
    """Of this task's last regression."""
    proposed: Equation
    """The first of the player's own equations, once a regression scored them."""
    seen: str
    rows: tuple[tuple[float, float, float, float], ...]
    """(x, t, u, y) listed by sampling in this task."""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "_State":
        noted = [m.content for m in messages[1:] if m.role is Role.USER]
        said = [m.content for m in messages if m.role is Role.ASSISTANT]
        step = re.search(r"Step (\d+) of \d+\. Points left: (\d+)", noted[-1])
        best: Equation = ()
        proposed: Equation = ()
        for mine, theirs in zip(said, noted[1:], strict=False):
            if match := re.search(r"^Best: (f\(u\) = .+) \(largest error", theirs, flags=re.MULTILINE):
                best = parse_equation(match[1])[0]
                own = re.search(r"<candidate_equations>([^;<]+)", mine)
                proposed = parse_equation(own[1])[0] if own else ()
        rows = [row for text in noted if "\nDataset " in text for row in _ROW.findall(text)]
        return cls(
            turn=int(step[1]) - 1 if step else 0,
            points_left=int(step[2]) if step else 0,
            sampled=any("\nDataset D" in text for text in noted),
            best=best,
            proposed=proposed,
            seen="\n".join(noted),
            rows=tuple((float(x), float(t), float(u), float(y)) for x, t, u, y in rows),
        )


def _spread(rows: Sequence[tuple[float, float, float, float]], count: int) -> list[tuple[float, float]]:
    """Points at the highest place seen, at times that spread u below the highest value that is not cut."""
    if not rows:
        return list(_BLIND[-count:])
    x, _, height, _ = max(rows, key=lambda row: row[2])
    honest = [u for _, _, u, y in rows if abs(y) < 2.9 and u > 0.02]
    cut = [u for _, _, u, y in rows if abs(y) >= 2.9]
    ceiling = min(cut) if cut else height
    top = max(honest, default=ceiling * 0.8)
    ceiling = max(top, (top + ceiling) / 2) if cut else height * 0.93
    targets = [ceiling * (count - i) / (count + 0.5) for i in range(count)]
    return [(x, min(1.0, max(0.0, math.log(max(height, 0.03) / max(u, 0.02)) / math.pi**2))) for u in targets]
