"""`plan`: the memory that a training would need, against a device's, and how long it would take; no weights are loaded."""

import math
from collections.abc import Sequence
from typing import Any

from cod_lightning.commands.from_run import built
from cod_lightning.commands.lightning_cli import Options
from cod_lightning.commands.memory import plan_of, show
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.lifecycles import outline
from cod_lightning.models import PretrainedPolicy
from cod_lightning.ranges import Positive
from cod_lightning.terminal import Screen
from cod_lightning.training.duration import Amounts, Pace, duration, measured

_OPTIONS: Options = {
    "gpu_gb": (Positive | None, None, "Memory of the GPU in GiB; null: of the device here."),
    "pace": (Pace, Pace(), "Tokens per second, for an estimate of the time."),
}


def amounts_of(data: RolloutDataModule, trainer: Any, window: int) -> Amounts:
    """What the run plays and trains; `trainer` is its config."""
    updates = data.updates_per_rollout * data.passes_per_rollout
    per_epoch = len(data.stream) // data.updates_per_rollout
    epochs = math.inf if trainer.max_epochs in (None, -1) else trainer.max_epochs
    steps = math.inf if trainer.max_steps in (None, -1) else trainer.max_steps / updates
    num_rollouts = min(epochs * per_epoch, steps)
    if math.isinf(num_rollouts):
        raise ConfigError("trainer.max_epochs", trainer.max_epochs, "a number, for a run that ends", "Set it.")
    episodes = outline(data.program, data.pack_size, data.context.updates)
    updates_a_task = (len(episodes) - data.pack_size) / data.pack_size
    at_end = sum((suite.num_packs * (suite.pack_size or data.pack_size)) for suite, _ in data.test_conditions())
    return Amounts(
        num_rollouts=math.ceil(num_rollouts),
        tasks_per_rollout=data.packs_per_rollout * data.group_size * data.pack_size,
        tasks_per_validation=data.val_packs * data.pack_size,
        num_validations=math.ceil(num_rollouts / per_epoch),
        tasks_at_end=at_end,
        most_sampled_per_task=data.max_new_tokens * (data.env.max_turns + updates_a_task),
        most_trained_per_task=window * (1 + updates_a_task),
        passes=data.passes_per_rollout,
        ahead=data.max_staleness > 0,
    )


def show_time(amounts: Amounts, pace: Pace, console: Screen) -> None:
    """Two lines on time, or what is missing for them."""
    known = duration(amounts, pace)
    bounded = [name for name in ("sampled_tokens_per_task", "trained_tokens_per_task") if getattr(pace, name) is None]
    if known is None:
        console.print(
            f"Time: {amounts.num_rollouts:,} rollouts of {amounts.tasks_per_rollout:,} tasks; for hours give "
            "--pace.sampled_tokens_per_s and --pace.trained_tokens_per_s, or a run's folder as --pace.measured.",
            soft_wrap=True,
        )
        return
    most = f" at most (--pace.{' and --pace.'.join(bounded)} not given)" if bounded else ""
    console.print(
        f"Time: {known.total_s / 3600:.1f} h{most}. {amounts.num_rollouts:,} times a rollout of {known.rollout_s:.0f} s"
        f"{' beside' if amounts.ahead else ','} training of {known.training_s:.0f} s, a sync of {known.sync_s:.1f} s; "
        f"{amounts.num_validations} validations of {known.validation_s:.0f} s; {known.end_s / 60:.0f} min for suites at the end.",
        soft_wrap=True,
    )


def run(argv: Sequence[str]) -> int:
    """Print the plan; 1 where it does not fit."""
    cli = built("plan", _OPTIONS, argv)
    policy = cli.model.policy
    if not (isinstance(policy, PretrainedPolicy) and policy.path):
        expected = "a policy from a folder or the hub, whose size is worth a plan"
        raise ConfigError(
            "model.policy", type(policy).__name__, expected, "Choose model.policy=PretrainedPolicy, or LoRAPolicy."
        )
    screen = Screen()
    try:
        cli.datamodule.check_with(policy, elsewhere=True)
    except (ConfigError, DataError) as error:  # a folder with a config alone, a world of another machine
        screen.print(f"Rows are planned as long as the window, since {error}", soft_wrap=True)
    plan = plan_of(cli.model, cli.datamodule, cli.asked_trainer, cli.config.gpu_gb)
    amounts, pace = amounts_of(cli.datamodule, cli.asked_trainer, policy.window), measured(cli.config_init.pace)
    show(plan, cli.model, cli.asked_trainer, screen)
    show_time(amounts, pace, screen)
    return 0 if plan.fits else 1
