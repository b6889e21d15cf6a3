"""Writes `evaluation.json` from played conditions; its shape is in `schema.py`."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from cod_lightning.errors import DataError
from cod_lightning.evaluation.controls import ByWarmStart, Control
from cod_lightning.evaluation.figures import figures
from cod_lightning.evaluation.intervals import SHARE, bootstrap, position_estimates
from cod_lightning.evaluation.outcomes import Outcomes, position_means
from cod_lightning.evaluation.schema import Paired, PositionRecord, Results, SuiteRecord, WarmStartDifference
from cod_lightning.evaluation.suite import Suite
from cod_lightning.files import readable, write_whole
from cod_lightning.seeds import derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedCondition:
    """One condition of one suite, played to its end."""

    suite: Suite
    control: Control
    env: str
    """Name of the world."""
    outcomes: Outcomes
    changes: tuple[int | None, ...] | None = None
    """[P] positions at which the packs' rules change, None in one whose rule stays; None where all do."""
    own_reward: bool = False
    """Whether the reward of a task is the environment's own, without further parts."""
    checkpoint: str | None = None
    """What holds the trained policy's weights, as it was named; None for the module's own weights, warm start and references."""
    policy: str | None = None
    """Name of what plays in the trained policy's place where nothing was trained; None: a policy that was."""

    @property
    def temperature(self) -> float:
        """At which the policy was sampled."""
        return self.suite.temperature_of(self.control)


def suite_record(played: Sequence[PlayedCondition]) -> SuiteRecord:
    """The record of one suite from all its conditions, the trained policy's among them."""
    by_name = {one.control.name: one for one in played}
    trained = by_name["trained"]
    suite, outcomes = trained.suite, trained.outcomes
    seed = derive_seed("bootstrap", suite.name, 0)
    ends = outcomes.success[:, [0, -1]]
    (gain,) = bootstrap(ends, np.array([[-1.0, 1.0]]), rules=outcomes.rules, limits=SHARE, seed=seed)
    controls = {name: one.outcomes for name, one in by_name.items() if one is not trained}
    warm_starts = [one for one in by_name.values() if isinstance(one.control, ByWarmStart)]
    best = max(warm_starts, key=lambda one: one.outcomes.mean_success, default=None)
    named = None if best is None else (best.control.name, best.temperature)
    compared = figures(outcomes, controls, trained.changes, seed, trained.own_reward, named)
    record = SuiteRecord(
        env=trained.env,
        packs=outcomes.num_packs,
        rules=outcomes.num_rules,
        pack_size=outcomes.num_positions,
        temperature=trained.temperature,
        positions=_positions(outcomes, seed),
        controls={name: _positions(theirs, seed) for name, theirs in controls.items()},
        cod_gain=gain.known,
        paired=Paired(
            trained_minus_best_warm_start=None
            if best is None
            else WarmStartDifference(
                best_temperature=best.temperature,
                temperatures=[one.temperature for one in warm_starts],
                mean_difference=compared["differences"][best.control.name]["success"]["mean"],
                ci95=compared["differences"][best.control.name]["success"]["ci95"],
            ),
            gain_ci95=gain.ci95,
            blanked_max_deviation=_blanked_deviation(trained, by_name.get("blanked_context")),
        ),
        checkpoint=trained.checkpoint,
        figures=compared,
    )
    if trained.policy is not None:
        record["policy"] = trained.policy
    return record


def results_of(played: Sequence[PlayedCondition]) -> Results:
    """One record for each suite that the trained policy has played; a condition played twice counts as played last."""
    suites: dict[str, list[PlayedCondition]] = {}
    for one in played:
        suites.setdefault(one.suite.name, []).append(one)
    complete = {name: ones for name, ones in suites.items() if any(one.control.name == "trained" for one in ones)}
    return Results(suites={name: suite_record(ones) for name, ones in complete.items()})


def write_results(path: Path, played: Sequence[PlayedCondition]) -> Results:
    """Write what was played to the file, in one replace, and return all that the file then holds.

    Suites that the file holds already and that were not played again are kept.
    """
    found = results_of(played)  # takes seconds, in which another process may write there
    kept = read_results(path) if path.exists() else Results(suites={})
    for name, new in found["suites"].items():
        old = kept["suites"].get(name, new)
        if other := [
            f"{key} {old[key]} -> {new[key]}" for key in ("env", "packs", "pack_size") if old[key] != new[key]
        ]:
            print(f"note: {path}: the suite {name} replaces another of that name ({', '.join(other)})", file=sys.stderr)
    results = Results(suites={**kept["suites"], **found["suites"]})
    write_whole(path, json.dumps(results, indent=2, allow_nan=False) + "\n")
    return results


def read_results(path: Path) -> Results:
    """The file as it is. Raises `DataError` where it is missing or damaged."""
    try:
        content = readable(path).read_bytes()
        msgspec.json.decode(content, type=Results)
        return msgspec.json.decode(content)  # with keys of later versions, which are kept
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is no evaluation.json of this project ({type(error).__name__}: {error}). "
            "Move it away and evaluate again."
        ) from error


def _positions(outcomes: Outcomes, seed: int) -> list[PositionRecord]:
    rewards = position_estimates(outcomes.rewards, rules=outcomes.rules, seed=seed)
    successes = position_estimates(outcomes.success, rules=outcomes.rules, limits=SHARE, seed=seed)
    num = outcomes.num_positions
    wrong = np.full(num, np.nan) if outcomes.malformed is None else position_means(outcomes.malformed)
    return [
        PositionRecord(
            reward=reward.known,
            reward_ci95=reward.ci95,
            success=success.known,
            success_ci95=success.ci95,
            n=reward.num,
            malformed=None if np.isnan(malformed) else float(malformed),
        )
        for reward, success, malformed in zip(rewards, successes, wrong, strict=True)
    ]


def _blanked_deviation(trained: PlayedCondition, blanked: PlayedCondition | None) -> float | None:
    if blanked is None:
        return None
    first = position_means(trained.outcomes.success)[0]
    deviation = float(np.abs(position_means(blanked.outcomes.success) - first).max())
    return None if np.isnan(deviation) else deviation
