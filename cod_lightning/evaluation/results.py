"""From what was played to `evaluation.json`, whose shape is in `schema.py`."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cod_lightning.errors import DataError
from cod_lightning.evaluation.conditions import Condition, PolicyLabel
from cod_lightning.evaluation.controls import Control
from cod_lightning.evaluation.figures import figures
from cod_lightning.evaluation.intervals import (
    Estimate,
    gain_estimate,
    mean_estimate,
    position_estimates,
    success_difference,
)
from cod_lightning.evaluation.outcomes import Outcomes, position_means
from cod_lightning.evaluation.schema import Interval, Paired, PositionRecord, Results, SuiteRecord, WarmStartDifference
from cod_lightning.evaluation.suite import Suite
from cod_lightning.seeds import derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One condition of one suite, played to its end."""

    suite: Suite
    condition: Condition
    env: str
    """Name of the world."""
    outcomes: Outcomes
    changes: tuple[int, ...] | None = None
    """[P] positions at which the packs' rules change; None where they stay."""
    checkpoint: str | None = None
    """What holds the trained policy's weights, as it was named; None for the module's own, and for everybody else."""


def suite_record(played: Sequence[Played]) -> SuiteRecord:
    """The record of one suite from all its conditions, the trained policy's among them."""
    by_name = {one.condition.name: one for one in played}
    trained = by_name[PolicyLabel.TRAINED]
    suite, outcomes = trained.suite, trained.outcomes
    seed = derive_seed("bootstrap", suite.name, suite.seed)
    gain = gain_estimate(outcomes.success, seed=seed)
    controls = {name: one.outcomes for name, one in by_name.items() if one is not trained}
    return SuiteRecord(
        env=trained.env,
        packs=outcomes.num_packs,
        pack_size=outcomes.num_positions,
        temperature=trained.condition.temperature,
        positions=_positions(outcomes, seed),
        controls={name: _positions(theirs, seed) for name, theirs in controls.items()},
        cod_gain=_number(gain.mean),
        paired=_paired(by_name, gain, seed),
        checkpoint=trained.checkpoint,
        figures=figures(outcomes, controls, trained.changes, seed),
    )


def results_of(played: Sequence[Played], *, by_checkpoint: bool = False) -> Results:
    """One record for each suite that the trained policy has played; a condition played twice counts as played last.

    With `by_checkpoint`, one for each suite and checkpoint, each beside the warm start and the references, which all share.
    """
    if not by_checkpoint:
        return Results(suites=_suites(played))
    checkpoints = dict.fromkeys(one.checkpoint for one in played if one.checkpoint is not None)
    shares = {name: [one for one in played if one.checkpoint in (None, name)] for name in checkpoints}
    return Results(suites={}, checkpoints={name: _suites(share) for name, share in shares.items()})


def write_results(path: Path, played: Sequence[Played], *, by_checkpoint: bool = False) -> Results:
    """Write what was played to the file, in one replace, and return all that the file then holds.

    Suites, and suites of checkpoints, that the file holds already and that were not played again are kept.
    """
    kept = read_results(path) if path.exists() else Results(suites={})
    found = results_of(played, by_checkpoint=by_checkpoint)
    results = Results(suites={**kept["suites"], **found["suites"]})
    earlier, anew = kept.get("checkpoints", {}), found.get("checkpoints", {})
    if checkpoints := {name: {**earlier.get(name, {}), **anew.get(name, {})} for name in {**earlier, **anew}}:
        results["checkpoints"] = checkpoints
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(results, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(draft, path)
    return results


def read_results(path: Path) -> Results:
    """The file as it is. Raises `DataError` where it is missing or damaged."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        every = [results["suites"], *results.get("checkpoints", {}).values()]
        for record in (record for suites in every for record in suites.values()):
            if missing := SuiteRecord.__required_keys__ - record.keys():
                raise KeyError(*sorted(missing))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} is no evaluation.json of this project ({type(error).__name__}: {error}). "
            "Move it away and evaluate again."
        ) from error
    return results


def _suites(played: Sequence[Played]) -> dict[str, SuiteRecord]:
    suites: dict[str, list[Played]] = {}
    for one in played:
        suites.setdefault(one.suite.name, []).append(one)
    complete = {name: ones for name, ones in suites.items() if any(_is_trained(one) for one in ones)}
    return {name: suite_record(ones) for name, ones in complete.items()}


def _is_trained(played: Played) -> bool:
    return played.condition.name == PolicyLabel.TRAINED


def _positions(outcomes: Outcomes, seed: int) -> list[PositionRecord]:
    estimates = position_estimates(np.concatenate([outcomes.rewards, outcomes.success], axis=1), seed=seed)
    rewards, successes = estimates[: outcomes.num_positions], estimates[outcomes.num_positions :]
    return [
        PositionRecord(
            reward=_number(reward.mean),
            reward_ci95=_interval(reward),
            success=_number(success.mean),
            success_ci95=_interval(success),
            n=reward.num,
        )
        for reward, success in zip(rewards, successes, strict=True)
    ]


def _paired(by_name: Mapping[str, Played], gain: Estimate, seed: int) -> Paired:
    trained = by_name[PolicyLabel.TRAINED]
    warm_starts = [one for one in by_name.values() if one.condition.policy == PolicyLabel.WARM_START]
    blanked = [one.outcomes for one in by_name.values() if one.condition.control == Control.BLANKED_CONTEXT]
    return Paired(
        trained_minus_best_warm_start=_warm_start_difference(trained, warm_starts, seed) if warm_starts else None,
        gain_ci95=_interval(gain),
        blanked_max_deviation=_blanked_deviation(trained.outcomes, blanked[0]) if blanked else None,
    )


def _warm_start_difference(trained: Played, warm_starts: Sequence[Played], seed: int) -> WarmStartDifference:
    """Against the warm start at its best temperature; choosing it on the same packs can only favour it."""
    best = max(warm_starts, key=lambda one: np.nan_to_num(position_means(one.outcomes.success)).mean())
    difference = success_difference(trained.outcomes, best.outcomes)
    mean, gain = mean_estimate(difference, seed=seed), gain_estimate(difference, seed=seed)
    return WarmStartDifference(
        best_temperature=best.condition.temperature,
        mean_difference=_number(mean.mean),
        ci95=_interval(mean),
        gain_difference=_number(gain.mean),
        gain_ci95=_interval(gain),
    )


def _blanked_deviation(trained: Outcomes, blanked: Outcomes) -> float | None:
    return _number(float(np.abs(position_means(blanked.success) - position_means(trained.success)[0]).max()))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _interval(estimate: Estimate) -> Interval:
    return None if math.isnan(estimate.mean) else [estimate.low, estimate.high]
