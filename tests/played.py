"""Suites that were not played: outcomes drawn at random from known rates."""

from collections.abc import Collection

import numpy as np

from cod_lightning.evaluation.controls import Weights
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.results import PlayedCondition
from cod_lightning.evaluation.suite import Suite

NUM_PACKS = 80
TRAINED, COLD = (0.4, 0.6, 0.7, 0.9), (0.3, 0.3, 0.3, 0.3)


def play(suite: Suite, weights: Collection[Weights] = ("trained", "warm_start", "none")) -> list[PlayedCondition]:
    """Every condition of the suite (of these weights), with successes drawn at random; the warm start is best at 0.5."""
    played = []
    for index, control in enumerate(suite.conditions()):
        rates = np.array(TRAINED if control.name == "trained" else COLD) + 0.1 * (control.temperature == 0.5)
        rates = np.full(4, 0.4) if control.name == "blanked_context" else rates
        success = (np.random.default_rng(index).random((NUM_PACKS, 4)) < rates).astype(float)
        ids = tuple(map(str, range(NUM_PACKS)))
        outcomes = Outcomes(rewards=success / 2, success=success, pack_ids=ids)
        if control.weights in weights:
            played.append(PlayedCondition(suite=suite, control=control, env="lake", outcomes=outcomes, own_reward=True))
    return played
