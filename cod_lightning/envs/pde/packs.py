"""Which worlds there are: a hidden equation of a family for a pack, and an initial state for every task."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from cod_lightning.envs.base import split_of_text
from cod_lightning.envs.checks import exhausted
from cod_lightning.envs.pde.library import Equation, Template, equation_of, written
from cod_lightning.envs.pde.numerics import highest_amplitude, stable
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Split

MAGNITUDES = (0.5, 2.0)
NUM_STRATA = 4
"""Amplitudes of positions 4k to 4k+3 come from the four quarters of (0, A_max], in random order."""
_MOST_DRAWS = 1000
_MOST_STATES = 128
_REMEDY = "Choose another family."


@dataclass(frozen=True, slots=True, kw_only=True)
class PDETask:
    """A hidden equation, an initial state, and the seed of its measurement noise."""

    terms: tuple[str, ...]
    coefficients: tuple[float, ...]
    weights: tuple[float, ...]
    """Of the sine modes in the initial state."""
    amplitude: float
    """Height of the initial state."""
    level: int
    """Which quarter of the amplitudes, 1 to 4."""
    noise_seed: int

    @property
    def equation(self) -> Equation:
        """The truth."""
        return tuple(zip(self.terms, self.coefficients, strict=True))


@dataclass(frozen=True)
class Worlds:
    """Draws equations and states; a pure function of its seeds."""

    templates: tuple[Template, ...]
    in_turn: bool
    """Templates by pack index, as in the benchmark, instead of at random."""
    max_modes: int
    """Sine modes in an initial state, with normal weights; 0 for one mode of weight 1."""

    def equation(self, seed: int, split: Split, index: int | None, avoid: Equation = ()) -> Equation:
        """A template with signs and magnitudes (two decimals); of the split, other than `avoid`."""
        rng = random.Random(derive_seed("pde equation", seed))
        template = rng.choice(self.templates)
        if self.in_turn and index is not None:
            template = self.templates[index % len(self.templates)]
        for _ in range(_MOST_DRAWS):
            if avoid:
                template = rng.choice(self.templates)
            sizes = {term: sign * round(rng.uniform(*MAGNITUDES), 2) for term, sign in template}
            equation = equation_of(sizes)
            fits = split_of_text(written(equation)) is split
            if fits and (not avoid or {t for t, _ in equation} != {t for t, _ in avoid} or len(self.templates) == 1):
                return equation
        value, wanted = written(avoid) or "the family", f"an equation of the split {split}"
        raise exhausted("family", value, wanted, _MOST_DRAWS, _REMEDY)

    def task(self, seed: int, equation: Equation, position: int) -> PDETask:
        """The task at a position, whatever the length of its pack; its state is redrawn until it is stable."""
        strata = random.Random(derive_seed("pde strata", seed, position // NUM_STRATA))
        level = strata.sample(range(NUM_STRATA), NUM_STRATA)[position % NUM_STRATA]
        highest = highest_amplitude(self.templates, MAGNITUDES)
        rng = random.Random(derive_seed("pde state", seed, position))
        for _ in range(_MOST_STATES):
            amplitude = highest * (level + 1 - rng.random()) / NUM_STRATA
            modes = rng.randint(1, self.max_modes) if self.max_modes else 0
            weights = tuple(rng.gauss(0.0, 1.0) for _ in range(modes)) or (1.0,)
            if stable(equation, weights, amplitude):
                return PDETask(
                    terms=tuple(term for term, _ in equation),
                    coefficients=tuple(value for _, value in equation),
                    weights=weights,
                    amplitude=amplitude,
                    level=level + 1,
                    noise_seed=derive_seed("pde noise", seed, position),
                )
        raise exhausted("family", written(equation), "a stable initial state", _MOST_STATES, _REMEDY)

    def other(self, seed: int, split: Split, old: Equation, tasks: Sequence[PDETask]) -> Equation:
        """Another equation under which the states of these tasks are stable too."""
        for attempt in range(_MOST_STATES):
            equation = self.equation(derive_seed("pde change", seed, attempt), split, None, avoid=old)
            if all(stable(equation, task.weights, task.amplitude) for task in tasks):
                return equation
        wanted = "another equation that keeps these states stable"
        raise exhausted("family", written(old), wanted, _MOST_STATES, "Choose another pack.")
