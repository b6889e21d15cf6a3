"""A curriculum: a bandit over the categories of an environment, by how much there is to learn from each."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.ranges import Positive, PositiveShare
from cod_lightning.seeds import derive_seed
from cod_lightning.training.packs import PackChoice, PackOutcomes, PackSource


class Bandit(PackSource):
    """Draws each pack's category c with probability softmax(Q / temperature)_c; Q follows the size of recent advantages.

    After every rollout, for each category of which an advantage is known,

        Q_c <- step_size * r_c + (1 - step_size) * Q_c,    r_c = mean |A| over the episodes of its packs,

    from Q = 0, with A without what a baseline adds to all (`AsymRE`). Packs in which all siblings do equally well have advantages
    of 0: what is solved always or never is drawn less. The weights of a mixture have no say.

    Source: Chen et al., "Self-Evolving Curriculum for LLM Reasoning" (SEC, arXiv 2505.14970), whose runs take a step size of 0.5
    and temperatures of 0.2, 0.4 and 1. What differs: its advantages are divided by the group's standard deviation (here
    `model.scale=group`); without that they have the scale of rewards, and a temperature that tells categories apart is lower.

    Args:
        step_size: Weight of the latest rollout in Q, in (0, 1].
        temperature: Of the softmax; high draws all categories alike, low draws the one of the largest Q.
    """

    compares = True

    def __init__(self, step_size: PositiveShare = 0.5, temperature: Positive = 0.2) -> None:
        self.step_size, self.temperature = step_size, temperature
        self.values: dict[str, float] = {}
        """Q by category."""
        self.num_packs: dict[str, int] = {}
        """Packs played by category."""

    def start(self, categories: Sequence[str], seed: int) -> None:
        """All categories begin equal."""
        super().start(categories, seed)
        self.values, self.num_packs = dict.fromkeys(categories, 0.0), dict.fromkeys(categories, 0)

    def probabilities(self) -> dict[str, float]:
        """How likely the next pack is of each category."""
        top = max(self.values.values())
        weights = {name: math.exp((value - top) / self.temperature) for name, value in self.values.items()}
        total = math.fsum(weights.values())
        return {name: weight / total for name, weight in weights.items()}

    def next(self, first: int, count: int) -> Sequence[PackChoice]:
        """Pack i of the run has index i in whichever category is drawn for it."""
        names, weights = zip(*self.probabilities().items(), strict=True)

        def drawn(index: int) -> str:
            return random.Random(derive_seed("bandit", self.seed, index)).choices(names, weights)[0]

        return [PackChoice(index, drawn(index)) for index in range(first, first + count)]

    def observe(self, outcomes: PackOutcomes) -> None:
        places = {name: c for c, name in enumerate(self.values)}
        category = torch.tensor([places[str(choice.category)] for choice in outcomes.choices])
        credit, table = outcomes.credit, outcomes.credit.table
        of_own = category[table.place[:, 0]]
        means = mean_absolute(credit.values - credit.of_equals, credit.valid & table.own, of_own, len(places)).tolist()
        for name, mean in zip(self.values, means, strict=True):
            if not math.isnan(mean):
                self.values[name] = self.step_size * mean + (1 - self.step_size) * self.values[name]
        for choice in outcomes.choices:
            self.num_packs[str(choice.category)] += 1

    def metrics(self) -> Mapping[str, float]:
        """By category: Q, the probability of the next pack, and packs played so far."""
        chances = self.probabilities()
        return {
            **{f"value/{name}": value for name, value in self.values.items()},
            **{f"probability/{name}": chance for name, chance in chances.items()},
            **{f"packs/{name}": num for name, num in self.num_packs.items()},
        }

    def state_dict(self) -> dict[str, Any]:
        return {"values": dict(self.values), "num_packs": dict(self.num_packs)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on there; categories that the state lacks begin anew."""
        self.values = {name: float(state_dict["values"].get(name, 0.0)) for name in self.categories}
        self.num_packs = {name: int(state_dict["num_packs"].get(name, 0)) for name in self.categories}


def mean_absolute(
    advantages: Float[Tensor, " N"], valid: Bool[Tensor, " N"], category: Int[Tensor, " N"], num_categories: int
) -> Float[Tensor, " C"]:
    """Mean |A| over the valid episodes of each category; NaN where there is none."""
    zeros = torch.zeros(num_categories, dtype=torch.float64)
    sums = zeros.index_add(0, category, advantages.abs().double() * valid)
    return sums / zeros.index_add(0, category, valid.double())
