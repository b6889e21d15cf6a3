"""What a policy has gathered: samples, hypotheses, and the equations that its last regression scored."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cod_lightning.envs.pde.actions import PDEAction, number_of
from cod_lightning.envs.pde.library import TERMS, Equation, parse_equation, parse_terms, support
from cod_lightning.envs.pde.regression import Fit, Reading, Regression, regress, supports_of, usable

MERGED = "merged_all"
MOST_CANDIDATES = 8
MOST_UNCERTAIN = 4
LONGEST_NOTE = 1000


class Refused(Exception):
    """A wrong value in an action: costs a step, and the task goes on."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """One sampling action's readings."""

    name: str
    noise_seed: int
    """Of the task they were taken in."""
    readings: tuple[Reading, ...]


class Desk:
    """Holds the samples of a pack, or of a task where the world has no memory; checks and carries out what is asked."""

    def __init__(self) -> None:
        self.datasets: tuple[Dataset, ...] = ()
        self.hypotheses: tuple[Fit, ...] = ()

    def __deepcopy__(self, memo: dict[int, object]) -> "Desk":
        return copy.copy(self)  # everything held is immutable

    def begin(self, noise_seed: int, budget: int) -> None:
        """Another task; samples and hypotheses stay."""
        self._noise_seed, self.budget = noise_seed, budget
        self.sampled = 0
        self.before = len(self.datasets)
        self.last: Regression | None = None

    @property
    def counter(self) -> int:
        """Readings already taken of this task, earlier attempts at it included: the place in its noise stream."""
        return sum(len(kept.readings) for kept in self.datasets if kept.noise_seed == self._noise_seed)

    @property
    def merged(self) -> tuple[Reading, ...]:
        """All readings kept."""
        return tuple(reading for kept in self.datasets for reading in kept.readings)

    def points(self, command: PDEAction) -> list[tuple[float, float]]:
        """The places asked for; raises `Refused`."""
        found = []
        for x_text, t_text in command.points:
            x, t = number_of(x_text), number_of(t_text)
            if x is None or t is None or not (0 < x < 1 and 0 <= t <= 1):
                raise Refused("Each point needs 0 < x < 1 and 0 <= t <= 1, as plain decimal numbers.")
            found.append((x, t))
        if not found:
            raise Refused("No point was given.")
        if len(found) > self.budget:
            raise Refused(f"{len(found)} points were asked for, but {self.budget} are left in this task.")
        return found

    def sample(self, points: Sequence[tuple[float, float]], measure: Callable[[int, float, float], Reading]) -> Dataset:
        """Take the readings; `measure` gets the place in the noise stream."""
        first = self.counter
        readings = tuple(measure(first + i, x, t) for i, (x, t) in enumerate(points))
        kept = Dataset(f"D{len(self.datasets) + 1}", self._noise_seed, readings)
        self.datasets = (*self.datasets, kept)
        self.budget -= len(readings)
        self.sampled += len(readings)
        return kept

    def regression(self, command: PDEAction, max_terms: int) -> Regression:
        """Fit as asked; raises `Refused`."""
        asked = command.arguments
        name = asked.get("dataset_id", MERGED)
        chosen = [kept.readings for kept in self.datasets if name in (MERGED, kept.name)]
        if not chosen:
            complaint = "There is no dataset of that name; sample first."
            raise Refused(complaint if self.datasets else "Sample first: there are no data.")
        readings = tuple(reading for kept in chosen for reading in kept)
        if not usable(readings):
            complaint = "Every point of this dataset is cut at the limit, so nothing can be fitted"
            raise Refused(f"{complaint}; sample smaller u.")
        threshold = number_of(asked.get("threshold", "0.05"))
        if threshold is None or not 0 <= threshold <= 0.5:
            raise Refused("threshold is a number from 0 to 0.5.")
        if ("dictionary" in asked) == ("candidate_equations" in asked):
            raise Refused("Give either dictionary or candidate_equations.")
        if "dictionary" in asked:
            whole = asked["dictionary"] == "all"
            terms, complaint = (TERMS, "") if whole else parse_terms(asked["dictionary"])
            if complaint:
                raise Refused(f"dictionary: {complaint}, or write all.")
            self.last = regress(readings, supports_of(terms, max_terms), threshold)
        else:
            own = _candidates(asked["candidate_equations"], max_terms)
            self.last = regress(readings, list(dict.fromkeys(map(support, own))), threshold, own)
        if not self.last.fits:
            self.last = None
            raise Refused("Every coefficient fell below the threshold; lower it or choose other terms.")
        return self.last

    def finalised(self, command: PDEAction) -> Fit:
        """The equation that ends the task, with its error; raises `Refused`."""
        asked = command.arguments
        if not self.sampled or self.last is None:
            raise Refused("Finalising needs a sample and a regression in this task first.")
        equation, complaint = parse_equation(asked.get("preferred_equation", ""))
        if complaint:
            raise Refused(f"preferred_equation: {complaint}.")
        if len(asked.get("note", "")) > LONGEST_NOTE:
            raise Refused(f"note has at most {LONGEST_NOTE} characters.")
        if asked.get("uncertain_terms"):
            terms, complaint = parse_terms(asked["uncertain_terms"])
            if complaint or len(terms) > MOST_UNCERTAIN:
                raise Refused(f"uncertain_terms: up to {MOST_UNCERTAIN} terms of the library, separated by semicolons.")
        for fit in self.last.fits:
            if fit.equation == equation:
                self.hypotheses = (*self.hypotheses, fit)
                return fit
        raise Refused("preferred_equation must be one that the last regression scored, with the same numbers.")


def _candidates(text: str, max_terms: int) -> list[Equation]:
    parts = [part for part in text.replace("\n", ";").split(";") if part.strip()]
    if not 1 <= len(parts) <= MOST_CANDIDATES:
        raise Refused(f"candidate_equations: 1 to {MOST_CANDIDATES} equations, separated by semicolons.")
    found = []
    for part in parts:
        equation, complaint = parse_equation(part)
        if complaint or len(equation) > max_terms:
            raise Refused(f"candidate_equations: {complaint or f'at most {max_terms} terms in an equation'}.")
        found.append(equation)
    return found
