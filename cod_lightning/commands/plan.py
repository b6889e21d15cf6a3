"""`plan`: the memory that a training would need, against a device's; no weights are loaded."""

from collections.abc import Sequence

from cod_lightning.commands.memory import plan_of, show
from cod_lightning.commands.parser import Options
from cod_lightning.commands.train import built
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.models import PretrainedPolicy
from cod_lightning.ranges import Positive
from cod_lightning.terminal import Screen

_OPTIONS: Options = {"gpu_gb": (Positive | None, None, "Memory of the GPU in GiB; null: of the device here.")}


def run(argv: Sequence[str]) -> int:
    """Print the plan; 1 where it does not fit."""
    cli = built("plan", _OPTIONS, argv)
    policy = cli.model.policy
    if not (isinstance(policy, PretrainedPolicy) and policy.path):
        expected = "a policy from a folder or the hub, whose size is worth a plan"
        remedy = "Choose model.policy=PretrainedPolicy, or LoRAPolicy."
        raise ConfigError("model.policy", type(policy).__name__, expected, remedy)
    screen, without = Screen(), ""
    try:
        cli.datamodule.check_with(policy, elsewhere=True)
    except (ConfigError, DataError) as error:  # a folder with a config alone, a world of another machine
        without = f"Rows are planned as long as the window, since {error}"
    plan = plan_of(cli.model, cli.datamodule, cli.config.trainer, cli.config.gpu_gb)
    if without:
        screen.print(without, soft_wrap=True)
    show(plan, cli.model, cli.config.trainer, screen)
    return 0 if plan.fits else 1
