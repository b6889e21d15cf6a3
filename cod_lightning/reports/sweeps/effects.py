"""What a choice does on the average over all combinations of the other keys: the rows that say what made no difference."""

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np

from cod_lightning.reports.sweeps.schema import Effect
from cod_lightning.reports.sweeps.statistics import BySeed, shared_packs, shared_seeds, statistics, success_table


def effects(
    settings: Mapping[str, dict[str, str]], outcomes: Mapping[str, BySeed], reference: Mapping[str, str]
) -> list[Effect]:
    """Each choice against the reference's; none where one key varies only, or where a combination is missing.

    Cells are weighed alike, and all are cut to the seeds and packs that all have.
    """
    axes = {key: list(dict.fromkeys(one[key] for one in settings.values())) for key in reference}
    by_setting = {tuple(one.values()): label for label, one in settings.items()}
    if len(axes) < 2 or set(by_setting) != set(product(*axes.values())):
        return []
    sides = list(outcomes.values())
    seeds = shared_seeds(sides)
    packs = shared_packs([{seed: side[seed] for seed in seeds} for side in sides])
    if not seeds or not packs:
        return []
    tables = {label: success_table(side, seeds, packs) for label, side in outcomes.items()}
    return list(_against(settings, tables, axes, reference))


def _against(
    settings: Mapping[str, dict[str, str]],
    tables: Mapping[str, np.ndarray],
    axes: Mapping[str, list[str]],
    reference: Mapping[str, str],
) -> Iterator[Effect]:
    for key, choices in axes.items():
        mean = {
            choice: np.mean([tables[label] for label, one in settings.items() if one[key] == choice], axis=0)
            for choice in choices
        }
        against = reference[key]
        for choice in choices:
            if choice != against:
                yield Effect(
                    key=key,
                    choice=choice,
                    against=against,
                    cells=len(settings) // len(choices),
                    difference=statistics(mean[choice] - mean[against]),
                )
