"""Many figures from one bootstrap: packs are resampled once, whatever the number of statistics."""

import numpy as np
from jaxtyping import Float

from cod_lightning.evaluation.intervals import Limits, bootstrap
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.schema import Figure


class Bundle:
    """Collects statistics over the same packs, then estimates them together.

    Args:
        packs: Outcomes with the packs, [P], that are the rows of what is added, and with their rules.
    """

    def __init__(self, packs: Outcomes) -> None:
        self._row = {pack_id: row for row, pack_id in enumerate(packs.pack_ids)}
        self._rules = packs.rules
        self._limits: list[Limits] = []
        self._values: list[Float[np.ndarray, "P M"]] = []
        self._contrasts: list[tuple[int, Float[np.ndarray, " M"]]] = []
        self._num_columns = 0

    def columns(self, values: Float[np.ndarray, "P M"], limits: Limits = None) -> int:
        """Add values by pack, with what there can be; the index of their first column. NaN is missing."""
        first = self._num_columns
        self._values.append(values)
        self._limits += [limits] * values.shape[1]
        self._num_columns += values.shape[1]
        return first

    def statistic(self, first: int, contrast: Float[np.ndarray, " M"]) -> int:
        """Ask for the statistic sum_m c_m * (mean over packs of column first + m); its index among the estimates."""
        self._contrasts.append((first, contrast))
        return len(self._contrasts) - 1

    def aligned(self, outcomes: Outcomes, values: Float[np.ndarray, "Q N"]) -> Float[np.ndarray, "P N"]:
        """Values by another list of packs, in the rows of ours; NaN where a pack is not among theirs."""
        found = np.full((len(self._row), values.shape[1]), np.nan)
        for pack_id, row in zip(outcomes.pack_ids, values, strict=True):
            if pack_id in self._row:
                found[self._row[pack_id]] = row
        return found

    def figures(self, seed: int) -> list[Figure]:
        """All of them, from the same resamples."""
        contrasts = np.zeros((len(self._contrasts), self._num_columns))
        for statistic, (first, contrast) in enumerate(self._contrasts):
            contrasts[statistic, first : first + len(contrast)] = contrast
        values = np.concatenate(self._values, axis=1)
        found = bootstrap(values, contrasts, rules=self._rules, limits=self._limits, seed=seed)
        return [one.figure() for one in found]
