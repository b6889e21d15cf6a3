"""Training curves: the columns of `metrics.csv`, grouped into panels."""

import csv
import math
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from cod_lightning.evaluation.view import shown_positions
from cod_lightning.reports.charts import Line
from cod_lightning.reports.records import number

_MOST_POINTS = 250
_MOST_STEPS = 1e15
LATE = 0.75
"""From this share of the updates on, a run is late."""
_STILL_RISING = 0.02
"""Gain from one validation to the next; at the end of the quick start it was .005."""
_FAMILIES = ("train/pass_at", "time", "throughput", "faults")
"""Columns that share a panel, beside those by position."""
_HIDDEN = re.compile(r"epoch|step|(train|val)/(lifecycles|num/.*)")
_TITLES = {
    "train/reward": "Reward in training",
    "train/pass_at": "Tasks solved in training by any of 1, 2, ..., K siblings (pass@k)",
    "val/success": "Success on validation packs",
    "val/success/new": "Success on validation tasks that their pack asks for the first time",
    "val/success/repeated": "Success on validation tasks that their pack repeats",
    "val/reward": "Reward on validation packs",
    "val/cod_gain": "Gain on validation packs",
    "val/context_parse_rate": "Contexts that parsed, validation",
    "train/entropy": "Entropy (nats per token)",
    "train/logprob_gap": "Log-prob gap, engine against training",
    "train/mismatch_kl": "Divergence of the engine from training (nats per token)",
    "train/mismatch_ess": "Effective sample size (share of tokens)",
    "train/divergence": "Divergence from the reference (nats per token)",
    "train/zero_variance_packs": "Packs without a signal, all siblings alike (share)",
    "train/red_temperature": "Temperature at which RED tilts advantages, a low one more (0: left alone)",
    "train/resampled_packs": "Packs played in place of others without a signal",
    "throughput": "Tokens per second",
    "time": "Seconds",
    "rollout/num_attempts": "Attempts beside the lifecycles",
    "rollout/attempt_tokens": "Tokens of attempts, sampled or new in prompts",
    "faults": "Lifecycles that failed, by fault",
    "engine/self_test_gap": "Log-prob gap in the engine's self-test",
    "engine/policy_moved": "Change of a fixed prompt's log-probs by a rollout's updates (nats, mean)",
}
"""Panels in the order in which they are shown; columns that are not named here come after them, under their own name."""

Panels = dict[str, list[Line]]
Metrics = Mapping[str, Mapping[int, float]]
"""Column of metrics.csv -> update -> value."""


def read_metrics(folder: Path) -> tuple[dict[str, dict[int, float]], list[str]]:
    """Numbers by column and step, and notes for the reader. The later row of a step counts."""
    path = folder / "metrics.csv"
    if not path.is_file():  # a pipe would be waited for
        return {}, ["There is no metrics.csv, so training curves are missing."]
    points, skipped, notes = dict[str, dict[int, float]](), 0, list[str]()
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            for row in csv.DictReader(line.replace("\0", "") for line in file if line.endswith("\n")):
                if (step := _float(row.get("step"))) is None or abs(step) > _MOST_STEPS:
                    skipped += 1
                    continue
                for column, text in row.items():
                    if column and (value := _float(text)) is not None:
                        points.setdefault(column, {})[int(step)] = value
    except (OSError, csv.Error) as error:
        notes.append(f"metrics.csv was read in part only ({error}).")
    if skipped:
        notes.append(f"{skipped:,} rows of metrics.csv have no step and were left out.")
    if not points:
        notes.append("metrics.csv holds no numbers.")
    return points, notes


def read_curves(folder: Path) -> tuple[Panels, list[str]]:
    """The panels of a run, and notes for the reader."""
    points, notes = read_metrics(folder)
    found: dict[str, list[Line]] = {}
    for column in sorted((one for one in points if not _HIDDEN.fullmatch(one)), key=_natural):
        panel, label = _placed(column)
        every = sorted(points[column].items())
        shown = [*every[: -1 : -(-len(every) // _MOST_POINTS)], every[-1]]  # nothing is smoothed
        line = Line(label=label, x=[step for step, _ in shown], y=[number(value) or 0.0 for _, value in shown])
        found.setdefault(panel, []).append(line)
    for panel, lines in found.items():
        if lines[0].label.startswith("position "):  # hundreds would hide each other
            found[panel] = [lines[place] for place in shown_positions(len(lines))]
    order = [*(name for name in _TITLES if name in found), *(name for name in found if name not in _TITLES)]
    return {_TITLES.get(name, name): found[name] for name in order}, notes


def num_updates(metrics: Metrics) -> int:
    """Updates that metrics.csv knows."""
    return 1 + max((max(values) for values in metrics.values() if values), default=-1)


def first_value(metrics: Metrics, column: str) -> float | None:
    """A column's value at the first update that has one; None without any."""
    values = metrics.get(column)
    return values[min(values)] if values else None


def late_mean(metrics: Metrics, column: str) -> float | None:
    """Mean of a column in the last quarter of the run's updates; None where it has no value there."""
    begins = math.floor(LATE * num_updates(metrics))
    values = [value for update, value in metrics.get(column, {}).items() if update >= begins]
    return sum(values) / len(values) if values else None


def ends(metrics: Metrics) -> dict[str, tuple[float, float]]:
    """pass@K and entropy (nats a token) of training: of the first update and in the mean of late ones, where logged."""
    found: dict[str, tuple[float, float]] = {}
    for name in [name for name in metrics if name.startswith("train/pass_at/")] + ["train/entropy"]:
        label = name.removeprefix("train/").replace("pass_at/", "pass@")
        if (first := first_value(metrics, name)) is not None and (last := late_mean(metrics, name)) is not None:
            found[label] = first, last
    return found


def in_training(metrics: Metrics) -> str:
    """The ends as a sentence, by which a reader sees whether a policy solves more or is only surer, and another one where success
    on validation packs was still rising; empty without either."""
    said = ", ".join(f"{label} {first:.3f} to {last:.3f}" for label, (first, last) in ends(metrics).items())
    found = [f"In training, first update to last quarter: {said} (nats a token)."] if said else []
    curves = [values for name, values in metrics.items() if name.startswith("val/success/position_")]
    steps = sorted(set.intersection(*map(set, curves)))[-2:] if curves else []
    means = [fmean(values[step] for values in curves) for step in steps]
    if len(means) == 2 and (gained := means[1] - means[0]) >= _STILL_RISING:
        found.append(
            f"Success on validation packs rose by {gained:+.3f} from the last validation but one to the last: the training "
            "may have ended early, and goes on with --ckpt_path last and a larger trainer.max_epochs, trainer.max_steps or "
            "sampled_token_budget."
        )
    return "\n".join(found)


def _placed(column: str) -> tuple[str, str]:
    """Panel and label of a column.

    >>> _placed("val/success/position_2"), _placed("train/pass_at/8"), _placed("time/rollout_s"), _placed("train/loss")
    (('val/success', 'position 2'), ('train/pass_at', '8'), ('time', 'rollout'), ('train/loss', ''))
    """
    panel, _, last = column.rpartition("/")
    if panel in _FAMILIES or last.startswith("position_"):
        return panel, last.removesuffix("_s").replace("_", " ")
    return column, ""


def _float(text: object) -> float | None:
    try:
        value = float(str(text))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _natural(column: str) -> list[Any]:
    """Numbers in a name count as numbers: position_10 comes after position_9."""
    return [int(piece) if place % 2 else piece for place, piece in enumerate(re.split(r"(\d{1,9})", column))]
