"""How long a training would take: tokens by its config, or by another run's measure, over tokens per second."""

import csv
import math
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from cod_lightning.errors import ConfigError
from cod_lightning.ranges import NonNegative, Positive

_COLUMNS = {
    "lifecycles": "train/lifecycles",
    "rollout_s": "time/rollout_s",
    "sampled": "throughput/generated_tokens_s",
    "train_s": "time/train_s",
    "trained": "throughput/trained_tokens_s",
    "sync_s": "time/sync_s",
}


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What is known of tokens and speed; what is not is bounded by the config, or left out."""

    measured: str | None = None
    """Folder of a run whose metrics.csv gives all that is not named here; its first update is left out."""
    sampled_tokens_per_s: Positive | None = None
    """Tokens that all engines together sample in a second."""
    trained_tokens_per_s: Positive | None = None
    """Tokens that go through forward and backward in a second, on all GPUs together."""
    sync_s: NonNegative | None = None
    """Seconds of a weight sync; null: 0."""
    sampled_tokens_per_task: NonNegative | None = None
    """Of a task's turns and the update after it; null: the most that data.max_new_tokens allows."""
    trained_tokens_per_task: NonNegative | None = None
    """Prompts included; null: a window for the task and one for the update."""


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """What a run plays and trains, by its config."""

    num_rollouts: int
    tasks_per_rollout: int
    tasks_per_validation: int
    num_validations: int
    tasks_at_end: int
    """Of all suites and conditions that a model plays."""
    most_sampled_per_task: float
    most_trained_per_task: float
    passes: int = 1
    ahead: bool = False
    """Whether the next rollout is sampled while training goes on."""


@dataclass(frozen=True, kw_only=True)
class Duration:
    """Seconds."""

    rollout_s: float
    training_s: float
    """Of a rollout's updates."""
    sync_s: float
    validation_s: float
    end_s: float
    total_s: float


def measured(pace: Pace) -> Pace:
    """The pace with what a run's metrics.csv says in place of what is not named. Raises `ConfigError` where that says nothing."""
    if pace.measured is None:
        return pace
    folder = Path(pace.measured)
    try:
        data = yaml.safe_load((folder / "config.yaml").read_text())["data"]
        size, num_updates = int(data["pack_size"]), int(data["updates_per_rollout"])
        with (folder / "metrics.csv").open(newline="") as file:
            table = [{key: row.get(column) for key, column in _COLUMNS.items()} for row in csv.DictReader(file)]
        rows = [{key: float(value) for key, value in row.items()} for row in table if all(row.values())][1:]  # pyright: ignore
        assert rows, "fewer than two updates"
    except (OSError, KeyError, TypeError, ValueError, AssertionError) as error:
        expected = f"a run's folder, whose config.yaml and metrics.csv have at least two updates ({error})"
        raise ConfigError("--pace.measured", pace.measured, expected, "Name one under runs/.") from None

    def total(*keys: str) -> float:
        return sum(math.prod(row[key] for key in keys) for row in rows)

    tasks = total("lifecycles") * size  # an update logs the lifecycles of its whole rollout
    found = {
        "sampled_tokens_per_s": total("rollout_s", "sampled") / total("rollout_s"),
        "trained_tokens_per_s": total("train_s", "trained") / total("train_s"),
        "sync_s": total("sync_s") / len(rows),
        "sampled_tokens_per_task": total("rollout_s", "sampled") / tasks,
        "trained_tokens_per_task": total("train_s", "trained") * num_updates / tasks,
    }
    return replace(pace, **{name: value for name, value in found.items() if getattr(pace, name) is None})


def duration(amounts: Amounts, pace: Pace) -> Duration | None:
    """Seconds of a training, with bounds for tokens that are not known; None without both speeds.

    One after the other: sample, train, sync. With `ahead` sampling and training overlap, and the longer one counts.
    """
    if pace.sampled_tokens_per_s is None or pace.trained_tokens_per_s is None:
        return None
    sampled = amounts.most_sampled_per_task if pace.sampled_tokens_per_task is None else pace.sampled_tokens_per_task
    trained = amounts.most_trained_per_task if pace.trained_tokens_per_task is None else pace.trained_tokens_per_task
    task_s = sampled / pace.sampled_tokens_per_s
    rollout_s = amounts.tasks_per_rollout * task_s
    training_s = amounts.passes * amounts.tasks_per_rollout * trained / pace.trained_tokens_per_s
    sync_s = pace.sync_s or 0.0
    step_s = (max(rollout_s, training_s) if amounts.ahead else rollout_s + training_s) + sync_s
    validation_s = amounts.tasks_per_validation * task_s
    end_s = amounts.tasks_at_end * task_s
    total_s = amounts.num_rollouts * step_s + amounts.num_validations * validation_s + end_s
    return Duration(
        rollout_s=rollout_s,
        training_s=training_s,
        sync_s=sync_s,
        validation_s=validation_s,
        end_s=end_s,
        total_s=total_s,
    )
