"""`plan`: the memory that a training would need, against a device's, and how long it would take; no weights are loaded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cod_lightning.commands.memory import plan_of, show
from cod_lightning.commands.parser import Options
from cod_lightning.commands.train import built
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.models import PretrainedPolicy
from cod_lightning.ranges import NonNegative, Positive
from cod_lightning.terminal import Screen


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Tokens that a task takes, and how many go by in a second, as in a short run's metrics.csv."""

    sampled_tokens_per_s: Positive
    """Tokens that all engines together sample in a second."""
    trained_tokens_per_s: Positive
    """Tokens that go through forward and backward in a second, on all GPUs together."""
    sampled_tokens_per_task: NonNegative
    """Of a task's turns and the update after it."""
    trained_tokens_per_task: NonNegative
    """Likewise, prompts included."""


_OPTIONS: Options = {
    "gpu_gb": (Positive | None, None, "Memory of the GPU in GiB; null: of the device here."),
    "pace": (Pace | None, None, "Tokens per second and task, for an estimate of the time (keys: --pace.help)."),
}


def time_of(data: RolloutDataModule, trainer: Any, pace: Pace, budget: int | None) -> str:
    """What a training takes in hours, weight syncs aside; `trainer`: its config, `budget`: of tokens.

    One after the other: sample, train. With rollouts ahead sampling and training overlap, and the longer one counts.
    """
    updates = data.updates_per_rollout * data.passes_per_rollout
    per_epoch = len(data.stream) // updates
    epochs = math.inf if trainer.max_epochs in (None, -1) else trainer.max_epochs
    steps = math.inf if trainer.max_steps in (None, -1) else trainer.max_steps / updates
    tasks = data.packs_per_rollout * data.group_size * data.pack_size
    sampled = tasks * pace.sampled_tokens_per_task
    if math.isinf(least := min(epochs * per_epoch, steps, budget / sampled if budget and sampled else math.inf)):
        raise ConfigError("trainer.max_epochs", trainer.max_epochs, "a number, for a run that ends", "Set it.")
    num_rollouts = math.ceil(least)
    every = math.inf if trainer.limit_val_batches == 0 else trainer.check_val_every_n_epoch or 1
    num_validations = int(math.ceil(least / per_epoch) // every)
    task_s = pace.sampled_tokens_per_task / pace.sampled_tokens_per_s
    rollout_s = tasks * task_s
    training_s = data.passes_per_rollout * tasks * pace.trained_tokens_per_task / pace.trained_tokens_per_s
    both, joined = (max, "beside") if data.max_staleness else (sum, "and")
    validation_s = data.val_packs * data.pack_size * task_s
    end_s = task_s * sum(suite.num_packs * (suite.pack_size or data.pack_size) for suite, _ in data.test_conditions())
    total_s = num_rollouts * both((rollout_s, training_s)) + num_validations * validation_s + end_s
    return (
        f"Time: {total_s / 3600:.1f} h. {num_rollouts:,} times a rollout of {rollout_s:.0f} s {joined} training of "
        f"{training_s:.0f} s; {num_validations} validations of {validation_s:.0f} s; {end_s / 60:.0f} min for suites at the end."
    )


def run(argv: Sequence[str]) -> int:
    """Print the plan; 1 where it does not fit."""
    cli = built("plan", _OPTIONS, argv)
    policy = cli.model.policy
    if not (isinstance(policy, PretrainedPolicy) and policy.path):
        expected = "a policy from a folder or the hub, whose size is worth a plan"
        remedy = "Choose model.policy=PretrainedPolicy, or LoRAPolicy."
        raise ConfigError("model.policy", type(policy).__name__, expected, remedy)
    screen = Screen()
    try:
        cli.datamodule.check_with(policy, elsewhere=True)
    except (ConfigError, DataError) as error:  # a folder with a config alone, a world of another machine
        screen.print(f"Rows are planned as long as the window, since {error}", soft_wrap=True)
    plan = plan_of(cli.model, cli.datamodule, cli.asked_trainer, cli.config.gpu_gb)
    show(plan, cli.model, cli.asked_trainer, screen)
    if cli.config.warm_start is not None:  # which plays the suites, too
        cli.datamodule.test_weights = ("trained", "warm_start")
    if (pace := cli.config_init.pace) is not None:
        budget = cli.config.sampled_token_budget
        screen.print(time_of(cli.datamodule, cli.asked_trainer, pace, budget), soft_wrap=True)
    return 0 if plan.fits else 1
